package config

import (
	"fmt"
	"net/url"
	"strings"
)

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	// Key is what it is about, as the source wrote it.
	Key string
	// Source says where the value came from: FILE:LINE, the environment variable or the flag.
	Source string
	// Value is what was given, without passwords; empty when the key itself is the problem.
	Value string
	// What says what is wrong and what to do.
	What string
}

// String gives the problem on one line.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Source + ": " + p.Key)
	if p.Value != "" {
		fmt.Fprintf(&b, " = %q", p.Value)
	}
	b.WriteString(" " + p.What)
	return b.String()
}

// Error is all that is wrong with the configuration.
type Error struct {
	Problems []Problem
}

// Error lists the problems, one a line.
func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return "configuration: " + e.Problems[0].String()
	}
	lines := []string{fmt.Sprintf("configuration: %d problems", len(e.Problems))}
	for _, p := range e.Problems {
		lines = append(lines, "  "+p.String())
	}
	return strings.Join(lines, "\n")
}

// redact takes the password out of a URL, and out of each of several. Text that is no URL stays as it is, unless it looks
// as if it held a login that cannot be told apart from the rest.
func redact(s string) string {
	parts := splitURLs(s)
	for i, part := range parts {
		parts[i] = redactOne(part)
	}
	return strings.Join(parts, ",")
}

// splitURLs parts a list at the commas that a new URL follows: those inside one URL part hosts.
func splitURLs(s string) []string {
	var parts []string
	for part := range strings.SplitSeq(s, ",") {
		if len(parts) > 0 && !strings.Contains(part, "://") {
			parts[len(parts)-1] += "," + part
			continue
		}
		parts = append(parts, part)
	}
	return parts
}

func redactOne(s string) string {
	at := strings.LastIndex(s, "@")
	if at < 0 {
		return s
	}
	head := s[:at]
	scheme := strings.Index(head, "://")
	start := 0
	if scheme >= 0 {
		start = scheme + len("://")
	}
	user, _, found := strings.Cut(head[start:], ":")
	if !found {
		return s
	}
	return s[:start] + url.PathEscape(user) + ":xxxxx" + s[at:]
}
