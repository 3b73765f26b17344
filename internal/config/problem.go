package config

import (
	"fmt"
	"strings"

	"github.com/msghandler/msghandler/internal/escape"
)

// Problem is a mistake in the configuration.
type Problem struct {
	// Key is the key in the form of the source.
	Key string
	// Source says where the value came from: FILE:LINE, the environment variable or the flag.
	Source string
	// Value is the given value without passwords; empty when the key itself is the problem.
	Value string
	// What is the mistake and the action.
	What string
}

// String returns the problem as a single line: no name or value can forge another one.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Source + ": " + p.Key)
	if p.Value != "" {
		fmt.Fprintf(&b, " = %q", p.Value)
	}
	b.WriteString(" " + p.What)
	return escape.Line(b.String())
}

// Error holds all problems of the configuration.
type Error struct {
	Problems []Problem
}

// Error lists the problems, each on a line.
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

// redact removes a possible login from a value.
func redact(s string) string {
	at := strings.LastIndexByte(s, '@')
	if at < 0 || !strings.Contains(s[:at], ":") {
		return s
	}
	return "xxxxx" + s[at:]
}
