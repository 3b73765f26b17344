package docs

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// variablePattern is a variable, and not a prefix of variables such as MSGHANDLER_TLS_.
var variablePattern = regexp.MustCompile(`^MSGHANDLER_[A-Z0-9_]*[A-Z0-9](=|$)`)

// namePattern is the name of a metric or of a table.
var namePattern = regexp.MustCompile(`^msghandler_[a-z_]+$`)

// checkSpans checks the commands, flags, variables, metrics and paths within paragraphs and tables.
func checkSpans(t *testing.T, p *page) (problems []problem) {
	t.Helper()
	for _, found := range p.spans {
		s := newScript(t, func(_ int, what string) problem { return problem{found.page, found.line, what} })
		s.whole = false
		first, _, _ := strings.Cut(found.code, " ")
		_, ours := programs[path.Base(first)]
		switch {
		case ours, first != found.code && slices.Contains([]string{"make", "curl"}, first), roots.MatchString(first):
			s.check(withoutPlaceholders(found.code))
		case variablePattern.MatchString(first):
			name, value, _ := strings.Cut(found.code, "=")
			s.variable(0, name, value)
		case strings.HasPrefix(first, "--"):
			if what := checkFlag(p, first); what != "" {
				s.problem(0, "%s", what)
			}
		case namePattern.MatchString(found.code):
			if what := knownMetric(t, found.code); what != "" {
				s.problem(0, "%s", what)
			}
		}
		problems = append(problems, s.problems...)
	}
	return problems
}

// withoutPlaceholders leaves out the dots that stand for more arguments.
func withoutPlaceholders(command string) string {
	return strings.TrimSuffix(strings.TrimSuffix(command, " ..."), "…")
}
