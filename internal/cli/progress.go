package cli

import (
	"fmt"
	"io"
	"time"
)

const (
	// quietFor is how long something may take before it says how far it is.
	quietFor = time.Second
	// tellInterval and linesInterval are how often it says so: in place on a terminal, in lines elsewhere.
	tellInterval, linesInterval = 200 * time.Millisecond, 10 * time.Second
	// clearLine goes to the beginning of the line and removes it.
	clearLine = "\r\x1b[K"
)

// progress tells on standard error how far something is that takes its time.
type progress struct {
	out     io.Writer
	live    bool
	quiet   time.Time
	told    bool
	started time.Time
}

func (s *session) progress() *progress {
	now := time.Now()
	return &progress{out: s.Err, live: isTerminal(s.Err), started: now, quiet: now.Add(quietFor)}
}

// tell says how far it is, unless it has just begun or just told.
func (p *progress) tell(format string, args ...any) {
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
func (p *progress) end() {
	if p.live && p.told {
		fmt.Fprint(p.out, clearLine)
	}
}
