package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/escape"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

type topCommand struct {
	serverFlags
	Every time.Duration `default:"2s" help:"How often it looks."`
	Rows  int           `default:"10" help:"How many groups of messages in trouble it shows at most."`
}

// Help returns the text below the usage in --help.
func (c *topCommand) Help() string {
	return `Counts are of all coordinators that share the Redis; rates are of the coordinator that is asked. In trouble
are messages that are dead or abandoned, or wait after an error. They are grouped by state, producer, exchange and
cause, as in list --group: the largest group first, with the oldest message of each. A count with ~ is an estimate, as
not all messages of the state were read; a rare group may be missing. A narrow terminal loses the oldest message's age,
the exchange and the state, and never the cause; show prints the whole error of a message. Without a terminal, screens
follow each other, as wide as COLUMNS.`
}

// Control sequences that every terminal understands.
const (
	otherScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l" // the other screen, without a cursor, and long lines are cut
	firstScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	endOfLine   = "\x1b[K\n"
	restOfPage  = "\x1b[J"
)

// Run draws until an interrupt.
func (c *topCommand) Run(ctx context.Context, s *commandline.Session) error {
	if c.Rows < 0 {
		return commandline.UsageError{Err: fmt.Errorf("--rows=%d: must not be negative", c.Rows)}
	}
	a, err := c.connect(s)
	if err != nil {
		return err
	}
	defer a.Close()
	ctx, cancel := context.WithCancel(ctx)
	t := &top{
		command: c, admin: a, width: s.Width,
		since: time.Now(), rates: map[halfmsg.State]int64{}, before: map[string]int64{},
	}
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() { t.listen(ctx) })
	defer cancel()
	if commandline.IsTerminal(s.Out) {
		fmt.Fprint(s.Out, otherScreen)
		defer fmt.Fprint(s.Out, firstScreen)
	}
	return again(ctx, c.Every, func(ctx context.Context) error {
		page, err := t.page(ctx)
		if err != nil {
			return err
		}
		return draw(s, page)
	}, func(failure error) {
		// Standard error would write across the screen.
		_ = draw(s, fmt.Sprintf("%s\nno figures for now: %s", t.title(time.Now()), escape.Line(failure.Error())))
	})
}

// draw replaces the page before, or adds the page below where standard output is no terminal.
func draw(s *commandline.Session, page string) error {
	if commandline.IsTerminal(s.Out) {
		page = home + strings.ReplaceAll(page, "\n", endOfLine) + restOfPage
	}
	_, err := fmt.Fprintln(s.Out, page)
	return err
}

// top holds the figures of the last screen, for the next screen.
type top struct {
	command *topCommand
	admin   *admin
	// width is the number of columns of the next screen.
	width func() int

	mu sync.Mutex
	// rates counts the moves to each state since the last screen; stale says that no moves can be received.
	rates map[halfmsg.State]int64
	stale bool
	since time.Time
	// before are the counts of the last screen.
	before map[string]int64
}

// rated are the states whose rates are shown.
var rated = []halfmsg.State{halfmsg.Pending, halfmsg.Sendable, halfmsg.Done, halfmsg.RolledBack}

// listen counts moves until the context ends, and begins again where the coordinator has ended or was away.
func (t *top) listen(ctx context.Context) {
	request := &adminv1.TailMessagesRequest{}
	for _, state := range rated {
		request.States = append(request.States, msghandlerv1.State(state))
	}
	pause := time.NewTicker(max(t.command.Every, minInterval))
	defer pause.Stop()
	for ctx.Err() == nil {
		// The counts fail as well and show the reason.
		_ = t.admin.tail(ctx, request, func() { t.setReceiving(true) }, t.count)
		t.setReceiving(false)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
	}
}

// setReceiving records whether moves can be received.
func (t *top) setReceiving(receiving bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stale = !receiving
}

// count counts the moves of an answer.
func (t *top) count(news *adminv1.TailMessagesResponse) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range news.GetMoves() {
		t.rates[halfmsg.State(m.GetState())]++ //nolint:gosec // the values are the same
	}
	t.stale = news.GetMissedMoves() > 0
	return nil
}

// page draws a screen.
func (t *top) page(ctx context.Context) (string, error) {
	response, err := t.admin.client.GetStats(ctx, &adminv1.GetStatsRequest{})
	if err != nil {
		return "", err
	}
	groups, left, err := t.inTrouble(ctx)
	if err != nil {
		return "", err
	}
	now := time.Now()
	var b bytes.Buffer
	out := &commandline.Session{Process: commandline.Process{Out: &b}}
	fmt.Fprintf(&b, "%s\n%s\n\n", t.title(now), t.rateLine(now))
	if err := out.PrintTable(t.states(response.GetStates(), now)); err != nil {
		return "", err
	}
	if all := response.GetFindings(); len(all) > 0 {
		b.WriteString("\nTO LOOK AT\n")
		if err := out.PrintTable(findingRows(all, now)); err != nil {
			return "", err
		}
	}
	b.WriteString("\nIN TROUBLE\n")
	shown := groups[:min(len(groups), t.command.Rows)]
	if err := out.PrintTable(troubleRows(shown, t.width(), now)); err != nil {
		return "", err
	}
	b.WriteString(moreGroups(len(groups)-len(shown), left))
	return strings.TrimRight(b.String(), "\n"), nil
}

// title is the first line of each screen.
func (t *top) title(now time.Time) string {
	return fmt.Sprintf("msghandler at %s, %s", t.admin.server, now.Format(time.TimeOnly))
}

// rateLine says how many messages a second have reached each state since the last screen.
func (t *top) rateLine(now time.Time) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	seconds := now.Sub(t.since).Seconds()
	var parts []string
	for _, state := range rated {
		rate := "?"
		if !t.stale && seconds > 0 {
			rate = fmt.Sprintf("%.0f", float64(t.rates[state])/seconds)
		}
		parts = append(parts, fmt.Sprintf("%s %s/s", state, rate))
	}
	t.since, t.rates = now, map[halfmsg.State]int64{}
	return strings.Join(parts, "   ")
}

// states are the rows of stats, with the changes since the last screen.
func (t *top) states(states []*adminv1.StateStats, now time.Time) [][]string {
	rows := statsRows(states, now)
	rows[0] = append(rows[0], "CHANGE")
	for i, st := range states {
		name := stateName(st.GetState())
		change := ""
		if before, seen := t.before[name]; seen && st.GetCount() != before {
			change = fmt.Sprintf("%+d", st.GetCount()-before)
		}
		rows[i+1] = append(rows[i+1], change)
		t.before[name] = st.GetCount()
	}
	return rows
}

// troubleStates are the states that messages in trouble have.
var troubleStates = []halfmsg.State{halfmsg.Dead, halfmsg.Abandoned, halfmsg.Sendable, halfmsg.Pending}

// inTrouble groups dead and abandoned messages, and messages that wait after an error. left is how many small groups
// the coordinator left out.
func (t *top) inTrouble(ctx context.Context) (groups []*troubleGroup, left int, err error) {
	for _, state := range troubleStates {
		response, err := t.admin.client.GroupMessages(ctx, &adminv1.GroupMessagesRequest{
			Filter: &adminv1.MessageFilter{State: msghandlerv1.State(state)},
		})
		if err != nil {
			return nil, 0, err
		}
		left += int(response.GetOmittedGroups())
		for _, g := range response.GetGroups() {
			if inTrouble(state, g.GetExampleError()) {
				groups = append(groups, &troubleGroup{
					state: state.String(), exchange: g.GetExchange(), cause: halfmsg.Reason(g.GetCause()), count: g.GetCount(),
					estimated: response.GetSampleSize() < response.GetTotalSize(),
					message:   g.GetProducer() + "/" + g.GetExampleId(), oldest: g.GetOldestCreateTime(),
				})
			}
		}
	}
	sortTrouble(groups)
	return groups, left, nil
}

// inTrouble says whether a message of a state with a last error is in trouble.
func inTrouble(state halfmsg.State, lastError string) bool {
	return state == halfmsg.Dead || state == halfmsg.Abandoned || lastError != ""
}
