package house

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	// subjectsSince is when the rule about subjects began. Older commits are not judged.
	subjectsSince = "2026-11-24T12:00:00Z"
	// longestSubject keeps a subject whole in the lists that tools print.
	longestSubject = 72
)

// subject is `room: verb object`; several rooms stand with commas between them.
var subject = regexp.MustCompile(`^[a-z0-9/_.-]+(, [a-z0-9/_.-]+)*: [a-z]`)

func TestCommitSubjectsNameTheirRoom(t *testing.T) {
	t.Parallel()
	out := git(t, "log", "--no-merges", "--since="+subjectsSince, "--format=%h %s")
	for line := range strings.Lines(out) {
		hash, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !subject.MatchString(text) || utf8.RuneCountInString(text) > longestSubject {
			t.Errorf("commit %s: the subject %q is not `room: verb object` of at most %d characters", hash, text, longestSubject)
		}
	}
}
