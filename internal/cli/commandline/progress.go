package commandline

import (
	"fmt"
	"io"
	"time"
)

const (
	// quietFor is how long something may take on a terminal before it says how far it is, and tellInterval how often it
	// says so then.
	quietFor, tellInterval = time.Second, 200 * time.Millisecond
	// linesInterval is both of them elsewhere, where each time leaves a line.
	linesInterval = 10 * time.Second
	// clearLine goes to the beginning of the line and removes it.
	clearLine = "\r\x1b[K"
)

// progress tells on standard error how far something is that takes its time.
type Progress struct {
	out     io.Writer
	live    bool
	quiet   time.Time
	told    bool
	started time.Time
}

func (s *Session) Progress() *Progress {
	now := time.Now()
	p := &Progress{out: s.Err, live: IsTerminal(s.Err), started: now, quiet: now.Add(linesInterval)}
	if p.live {
		p.quiet = now.Add(quietFor)
	}
	return p
}

// during says what it is doing until it is stopped, for what cannot say how far it is.
func (p *Progress) During(what string) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(tellInterval)
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
	}()
	return func() {
		close(done)
		<-ended
	}
}

// tell says how far it is, unless it has just begun or just told. It is for one goroutine at a time.
func (p *Progress) Update(format string, args ...any) {
	now := time.Now()
	if now.Before(p.quiet) {
		return
	}
	line, before, after, pause := fmt.Sprintf(format, args...), "", "\n", linesInterval
	if p.live {
		before, after, pause = clearLine, "", tellInterval
	}
	fmt.Fprintf(p.out, "%s%s (%s)%s", before, line, now.Sub(p.started).Round(time.Second), after)
	p.quiet, p.told = now.Add(pause), true
}

// end makes room for the result.
func (p *Progress) End() {
	if p.live && p.told {
		fmt.Fprint(p.out, clearLine)
	}
}
