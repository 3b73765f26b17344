package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/cli/commandline"
)

// watchFlags are the flags of commands that print lists.
type watchFlags struct {
	Watch bool          `short:"w" help:"Print again and again until interrupted; json and yaml are a document each time."`
	Every time.Duration `default:"2s" help:"With --watch: how often, at least 100ms."`
}

// run prints once, or with --watch again and again. On a terminal each table replaces the table before.
func (f *watchFlags) run(
	ctx context.Context, s *commandline.Session, output string, once func(context.Context, *commandline.Session) error,
) error {
	if !f.Watch {
		return once(ctx, s)
	}
	if output == commandline.OutputName {
		return commandline.UsageError{
			Err: errors.New("--watch and --output=name: names have no mark between two lists; watch with --output=json"),
		}
	}
	s = s.Unpaged()
	return again(ctx, f.Every, func(ctx context.Context) error {
		switch output {
		case commandline.OutputYAML:
			fmt.Fprintln(s.Out, "---")
		case commandline.OutputTable:
			return watchTable(ctx, s, once)
		}
		return once(ctx, s)
	}, func(failure error) { s.Note("msghandler: %v", failure) })
}

// runAsking is run with a connection to a coordinator.
func (f *watchFlags) runAsking(
	ctx context.Context, s *commandline.Session, of *adminFlags,
	once func(context.Context, *commandline.Session, *admin) error,
) error {
	a, err := of.connect(s)
	if err != nil {
		return err
	}
	defer a.Close()
	return f.run(ctx, s, of.Output, func(ctx context.Context, s *commandline.Session) error { return once(ctx, s, a) })
}

// watchTable draws a table under the time.
func watchTable(
	ctx context.Context, s *commandline.Session, once func(context.Context, *commandline.Session) error,
) error {
	var page bytes.Buffer
	drawn := s.Drawn(&page)
	if commandline.IsTerminal(s.Out) {
		drawn.Err = &page // notes would write across the screen
	}
	fmt.Fprintln(&page, time.Now().UTC().Format("15:04:05 UTC"))
	if err := once(ctx, drawn); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(page.String(), "\n"), "\n")
	return draw(s, fitted(lines, s.Screen()))
}

// fitted leaves out the last lines where a screen would scroll, and says how many. A long name takes several rows.
func fitted(lines []string, screen commandline.Screen) []string {
	hidden := func(n int) string {
		return fmt.Sprintf("%d more lines have no room: use a larger terminal, or a filter", n)
	}
	most, spare, rows, kept := screen.Height-1, screen.Rows(hidden(len(lines))), 0, 0
	for _, line := range lines {
		if rows += screen.Rows(line); rows+spare <= most {
			kept++
		}
	}
	if most < 2 || rows <= most {
		return lines
	}
	return append(lines[:kept], hidden(len(lines)-kept))
}

// Control sequences that every terminal understands.
const (
	home       = "\x1b[H"
	endOfLine  = "\x1b[K\n"
	restOfPage = "\x1b[J"
)

// draw replaces the page before, or adds the page below where standard output is no terminal.
func draw(s *commandline.Session, lines []string) error {
	page := strings.Join(lines, "\n") + "\n"
	if commandline.IsTerminal(s.Out) {
		page = home + strings.Join(lines, endOfLine) + endOfLine + restOfPage
	}
	_, err := fmt.Fprint(s.Out, page)
	return err
}

// again does something at once and at each interval, until the context or an interrupt ends the watch, which is no
// failure. A failure of the first time ends the watch. Later failures are reported and the watch goes on, because a
// person watches to see an outage end.
func again(ctx context.Context, every time.Duration, do func(context.Context) error, report func(failure error)) error {
	if every < minInterval {
		return commandline.UsageError{Err: fmt.Errorf("--every=%s: at least %s", every, minInterval)}
	}
	ctx, stop := commandline.Interruptible(ctx)
	defer stop()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for first := true; ; first = false {
		switch err := do(ctx); {
		case err == nil || ctx.Err() != nil:
		case first:
			return err
		default:
			report(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// minInterval keeps a watch from being a load.
const minInterval = 100 * time.Millisecond
