package commandline

import (
	"strings"
	"testing"
	"time"
)

func TestProgressIsToldAfterAWhileAndNotTooOften(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	longAgo := time.Now().Add(-time.Minute)
	p := &Progress{out: &b, live: true, started: longAgo, quiet: time.Now().Add(quietFor)}
	p.Update("retried %d", 1)
	p.End()
	if b.String() != "" {
		t.Errorf("at once it says %q", &b)
	}
	p.quiet = longAgo
	p.Update("retried %d", 2)
	p.Update("retried %d", 3)
	p.End()
	if want := clearLine + "retried 2 (1m0s)" + clearLine; b.String() != want {
		t.Errorf("on a terminal it says %q, want %q", &b, want)
	}
	b.Reset()
	p = &Progress{out: &b, started: longAgo, quiet: longAgo}
	p.Update("retried %d", 4)
	p.End()
	if want := "retried 4 (1m0s)\n"; b.String() != want {
		t.Errorf("elsewhere it says %q, want %q", &b, want)
	}
}

// heard is a writer that says when it was written to.
type heard struct{ said chan string }

func (h heard) Write(p []byte) (int, error) {
	h.said <- string(p)
	return len(p), nil
}

func TestSomethingIsSaidWhileThereIsNothingToCount(t *testing.T) {
	t.Parallel()
	h := heard{make(chan string, 100)}
	stop := (&Progress{out: h, live: true, started: time.Now(), quiet: time.Now()}).During("looking")
	if said := <-h.said; said != clearLine+"looking (0s)" {
		t.Errorf("it says %q", said)
	}
	stop()
	close(h.said)
	last := ""
	for last = range h.said { // the last of it counts
	}
	if last != clearLine {
		t.Errorf("it leaves %q behind", last)
	}
}
