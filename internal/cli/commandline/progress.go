package commandline

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/escape"
)

const (
	// On a terminal, quietFor passes before the first update, and updateInterval between two updates.
	quietFor, updateInterval = time.Second, 200 * time.Millisecond
	// linesInterval replaces both where there is no terminal: each update leaves a line there.
	linesInterval = 10 * time.Second
	// clearLine removes the line of the cursor.
	clearLine = "\r\x1b[K"
)

// Progress shows on standard error how far a long operation is.
type Progress struct {
	out     io.Writer
	live    bool
	quiet   time.Time
	shown   bool
	started time.Time
}

// Progress returns a Progress for an operation that begins now. On a terminal it is silent for the first second;
// elsewhere it prints a line from time to time.
func (s *Session) Progress() *Progress {
	now := time.Now()
	p := &Progress{out: s.Err, live: IsTerminal(s.Err), started: now, quiet: now.Add(linesInterval)}
	if p.live {
		p.quiet = now.Add(quietFor)
	}
	return p
}

// During shows the name of an operation, which has no figures, until stop is called.
func (p *Progress) During(what string) (stop func()) {
	done := make(chan struct{})
	var showing sync.WaitGroup
	showing.Go(func() {
		ticker := time.NewTicker(updateInterval)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				p.End()
				return
			case <-ticker.C:
				p.Update("%s", what)
			}
		}
	})
	return func() {
		close(done)
		showing.Wait()
	}
}

// Update shows how far the operation is, unless the operation has just begun or the last update is recent. Only one
// goroutine may call Update at a time.
func (p *Progress) Update(format string, args ...any) {
	now := time.Now()
	if now.Before(p.quiet) {
		return
	}
	line, before, after, pause := escape.Line(fmt.Sprintf(format, args...)), "", "\n", linesInterval
	if p.live {
		before, after, pause = clearLine, "", updateInterval
	}
	fmt.Fprintf(p.out, "%s%s (%s)%s", before, line, now.Sub(p.started).Round(time.Second), after)
	p.quiet, p.shown = now.Add(pause), true
}

// End makes room for the result.
func (p *Progress) End() {
	if p.live && p.shown {
		fmt.Fprint(p.out, clearLine)
	}
}
