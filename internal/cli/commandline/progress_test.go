package commandline

import (
	"strings"
	"testing"
	"time"
)

func TestProgressIsDelayedAndRateLimited(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	longAgo := time.Now().Add(-time.Minute)
	p := &Progress{out: &b, live: true, started: longAgo, quiet: time.Now().Add(quietFor)}
	p.Update("retried %d", 1)
	p.End()
	if b.String() != "" {
		t.Errorf("at once the progress says %q", &b)
	}
	p.quiet = longAgo
	p.Update("retried %d", 2)
	p.Update("retried %d", 3)
	p.End()
	if want := clearLine + "retried 2 (1m0s)" + clearLine; b.String() != want {
		t.Errorf("on a terminal the progress says %q, want %q", &b, want)
	}
	b.Reset()
	p = &Progress{out: &b, started: longAgo, quiet: longAgo}
	p.Update("retried %d", 4)
	p.End()
	if want := "retried 4 (1m0s)\n"; b.String() != want {
		t.Errorf("elsewhere the progress says %q, want %q", &b, want)
	}
}

// lines is a writer that hands every write over.
type lines struct{ written chan string }

func (l lines) Write(p []byte) (int, error) {
	l.written <- string(p)
	return len(p), nil
}

func TestProgressWithoutFiguresIsShown(t *testing.T) {
	t.Parallel()
	l := lines{make(chan string, 100)}
	stop := (&Progress{out: l, live: true, started: time.Now(), quiet: time.Now()}).During("looking")
	if said := <-l.written; said != clearLine+"looking (0s)" {
		t.Errorf("the progress says %q", said)
	}
	stop()
	close(l.written)
	last := ""
	for last = range l.written { // only the last write counts
	}
	if last != clearLine {
		t.Errorf("the progress leaves %q behind", last)
	}
}
