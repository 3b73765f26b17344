package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/escape"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

type topCommand struct {
	serverFlags
	Every time.Duration `default:"2s" help:"How often it looks, at least 100ms."`
}

// Help returns the text below the usage in --help.
func (c *topCommand) Help() string {
	return `Counts and rates are sums of all coordinators that share the Redis. In trouble are messages that are dead or
abandoned, or wait after an error. They are grouped by state, producer, exchange and cause, as in list --group, with the
oldest message of each. A count with ~ is an estimate, as not all messages of the state were read; a rare group may be
missing. A problem that follows another stands below it.

Keys: q quits; arrows, Page Up, Page Down, Home and End scroll; c sorts producers and groups by rate and count, a by the
age of the last answer and of the oldest message, n by name. A narrow terminal loses columns, and never names and
causes; show prints the whole error of a message. Without a terminal, screens follow each other.`
}

const (
	otherScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l" // the other screen, without a cursor, and long lines are cut
	firstScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// Run draws until an interrupt.
func (c *topCommand) Run(ctx context.Context, s *commandline.Session) error {
	a, err := c.connect(s)
	if err != nil {
		return err
	}
	defer a.Close()
	ctx, cancel := context.WithCancel(ctx)
	t := &top{admin: a, session: s, order: byCount, before: map[string]int64{}}
	var typing sync.WaitGroup
	if commandline.IsTerminal(s.Out) {
		fmt.Fprint(s.Out, otherScreen)
		defer fmt.Fprint(s.Out, firstScreen) // after the keys have ended: a late key would draw on the first screen
		typing.Go(func() { s.Keys(ctx, func(key string) { t.press(key, cancel) }) })
	}
	defer typing.Wait()
	defer cancel()
	return again(ctx, c.Every, t.look, t.fail)
}

// order is what producers and groups are sorted by.
type order string

const (
	byCount order = "count"
	byAge   order = "age"
	byName  order = "name"
)

// top is what the screen shows. The keys change it while the figures of the next screen are fetched.
type top struct {
	admin   *admin
	session *commandline.Session

	mu sync.Mutex
	// figures are those of the last look; nil: there were none.
	figures *figures
	// failure says why there are no figures for now.
	failure error
	order   order
	// from is the first line of the figures that is shown.
	from int
	// before are the counts of the look before the last.
	before map[string]int64
}

// figures are the answers of a look.
type figures struct {
	at     time.Time
	stats  *adminv1.GetStatsResponse
	groups []group
	// left is how many small groups the coordinator left out.
	left    int
	changes map[string]string
}

// look fetches figures and draws them.
func (t *top) look(ctx context.Context) error {
	stats, err := t.admin.client.GetStats(ctx, &adminv1.GetStatsRequest{})
	if err != nil {
		return err
	}
	groups, left, err := groupTrouble(ctx, t.admin)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &figures{at: time.Now(), stats: stats, groups: groups, left: left, changes: map[string]string{}}
	for _, st := range stats.GetStates() {
		name, count := stateName(st.GetState()), st.GetCount()
		if before, seen := t.before[name]; seen && count != before {
			f.changes[name] = fmt.Sprintf("%+d", count-before)
		}
		t.before[name] = count
	}
	t.figures, t.failure = f, nil
	return t.draw()
}

// fail shows a failure in place of figures. Standard error would write across the screen.
func (t *top) fail(failure error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure = failure
	_ = t.draw()
}

// press does what a key says.
func (t *top) press(key string, quit func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	page := max(1, t.room(0)-1)
	switch key {
	case "q":
		quit()
		return
	case "c":
		t.order = byCount
	case "a":
		t.order = byAge
	case "n":
		t.order = byName
	case "k", "\x1b[A", "\x1bOA":
		t.from--
	case "j", "\x1b[B", "\x1bOB":
		t.from++
	case "b", "\x1b[5~":
		t.from -= page
	case " ", "\x1b[6~":
		t.from += page
	case "g", "\x1b[H", "\x1b[1~":
		t.from = 0
	case "G", "\x1b[F", "\x1b[4~":
		t.from = len(t.lines())
	}
	_ = t.draw()
}

// room is how many of the lines of the figures a terminal shows, without the two lines above, and the line of keys. A
// terminal whose height is not known, as on Windows and on a serial line, gets all.
func (t *top) room(lines int) int {
	if height := t.session.Screen().Height; height > 0 {
		lines = height - 4
	}
	return max(1, lines)
}

// draw draws the screen.
func (t *top) draw() error {
	lines := t.lines()
	head := t.head()
	if !commandline.IsTerminal(t.session.Out) {
		return draw(t.session, slices.Concat(head, lines))
	}
	room := t.room(len(lines))
	t.from = max(0, min(t.from, len(lines)-room))
	end := min(len(lines), t.from+room)
	keys := fmt.Sprintf("lines %d-%d of %d   q quit   arrows, pages scroll   sort by: c count, a age, n name (%s)",
		min(t.from+1, end), end, len(lines), t.order)
	page := slices.Concat(head, lines[t.from:end])
	for n := end - t.from; n < room; n++ {
		page = append(page, "")
	}
	return draw(t.session, append(page, keys))
}

// head is the first two lines: where and when, and the sums of the fleet.
func (t *top) head() []string {
	title := "msghandler at " + t.admin.server + ", " + time.Now().UTC().Format("15:04:05 UTC")
	if t.failure != nil || t.figures == nil {
		return []string{title}
	}
	flow := t.figures.stats.GetFlow()
	return []string{title, fmt.Sprintf("in %s/s   out %s/s   refused %s/s   p50 %s   p99 %s   of %s",
		perSecond(flow.GetStoredPerSecond()), perSecond(flow.GetAcknowledgedPerSecond()),
		perSecond(flow.GetRefusedPerSecond()), latencyOf(flow.GetLatencyP50()), latencyOf(flow.GetLatencyP99()),
		amount(int64(flow.GetCoordinatorCount()), "coordinator"))}
}

// lines are the tables below.
func (t *top) lines() []string {
	switch {
	case t.failure != nil:
		return []string{"no figures for now: " + escape.Line(t.failure.Error())}
	case t.figures == nil:
		return nil
	}
	f, screen := t.figures, t.session.Screen()
	var b strings.Builder
	section := func(title string, rows [][]string) {
		if title != "" {
			b.WriteString("\n" + title + "\n")
		}
		b.Write(screen.Table(rows))
	}
	section("", f.stateRows())
	if all := f.stats.GetFindings(); len(all) > 0 {
		section("TO LOOK AT", findingRows(all, f.at))
	}
	section("IN TROUBLE", troubleRows(t.order.groups(f.groups), f.at))
	if f.left > 0 {
		fmt.Fprintf(&b, "the coordinator leaves out %d smaller groups\n", f.left)
	}
	if all := f.stats.GetProducers(); len(all) > 0 {
		section("PRODUCERS", producerRows(t.order.producers(all), f.at))
	}
	return strings.Split(strings.TrimSuffix("\n"+b.String(), "\n"), "\n")
}

// stateRows are the rows of stats, with the changes since the last look.
func (f *figures) stateRows() [][]string {
	rows := statsRows(f.stats.GetStates(), f.at)
	rows[0] = append(rows[0], "CHANGE")
	for i, st := range f.stats.GetStates() {
		rows[i+1] = append(rows[i+1], f.changes[stateName(st.GetState())])
	}
	return rows
}
