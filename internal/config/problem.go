package config

import (
	"fmt"
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

// redact takes what may be a login out of a value that is to hold none.
func redact(s string) string {
	at := strings.LastIndexByte(s, '@')
	if at < 0 || !strings.Contains(s[:at], ":") {
		return s
	}
	return "xxxxx" + s[at:]
}
