package faults

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each made-up ledger has one defect, and the checker names exactly this defect.
func TestTheCheckerFindsEachVerdict(t *testing.T) {
	t.Parallel()
	content := NewContent("orders", "paid", nil, []byte("body"))
	got := func(attempt int, redelivered bool) func(*Ledger) {
		return func(l *Ledger) { l.Got("p/1", Copy{content, attempt, redelivered}) }
	}
	as := func(key, body string) func(*Ledger) {
		return func(l *Ledger) { l.Got("p/1", Copy{NewContent("orders", key, nil, []byte(body)), 1, false}) }
	}
	headed := func(headers map[string]string) func(*Ledger) {
		return func(l *Ledger) { l.Got("p/1", Copy{NewContent("orders", "paid", headers, []byte("body")), 1, false}) }
	}
	withHeader := func(l *Ledger) {
		l.Sending("p/1", NewContent("orders", "paid", map[string]string{"a": "1", "b": "2"}, []byte("body")))
	}
	sent := func(l *Ledger) { l.Sending("p/1", content) }
	accepted := func(l *Ledger) { l.Accepted("p/1") }
	committed := func(l *Ledger) { l.Decide("p/1", Committed) }
	rolledBack := func(l *Ledger) { l.Decide("p/1", RolledBack) }
	again := func(l *Ledger) { l.Sending("p/1", NewContent("orders", "paid", nil, []byte("second"))) }
	unknown := func(l *Ledger) { l.Got("p/2", Copy{content, 1, false}) }
	both := func(l *Ledger) { l.Said("p/1", Committed); l.Said("p/1", RolledBack) }
	type steps []func(*Ledger)
	clean := steps{sent, accepted, committed}
	delivered := steps{sent, accepted, committed, got(1, false)}
	one, some := map[string]bool{"p/1": true}, map[string]bool{"p/9": true}
	broken := End{Counted: -1, CopiesExplained: true}
	for name, row := range map[string]struct {
		want Verdict
		end  End
		done steps
	}{
		"clean":            {"", End{Counted: 1}, delivered},
		"never committed":  {"", End{}, steps{sent, accepted}},
		"never accepted":   {"", End{}, steps{sent, committed}},
		"set aside":        {"", End{Parked: one, ParkedExplained: true}, clean},
		"flagged copy":     {"", broken, append(delivered[:4:4], got(2, false))},
		"redelivered copy": {"", broken, append(delivered[:4:4], got(1, true))},
		"attempts 2, 1":    {"", broken, append(clean[:3:3], got(2, false), got(1, false))},
		"attempts 2, 1, 1": {Dup, broken, append(clean[:3:3], got(2, false), got(1, false), got(1, false))},
		"attempts 1, 2, 1": {Dup, broken, append(delivered[:4:4], got(2, true), got(1, false))},
		"lost":             {Lost, End{}, clean},
		"rolled back":      {Phantom, End{Counted: 1}, steps{sent, rolledBack, got(1, false)}},
		"undecided":        {Phantom, End{Counted: 1}, steps{sent, got(1, false)}},
		"never sent":       {Corrupted, End{Counted: 1}, steps{unknown}},
		"other body":       {Corrupted, End{Counted: 1}, append(clean[:3:3], as("paid", "other"))},
		"other key":        {Corrupted, End{Counted: 1}, append(clean[:3:3], as("other", "body"))},
		"same headers": {
			"", End{Counted: 1}, steps{withHeader, accepted, committed, headed(map[string]string{"b": "2", "a": "1"})},
		},
		"lost header": {
			Corrupted, End{Counted: 1}, steps{withHeader, accepted, committed, headed(map[string]string{"a": "1"})},
		},
		"changed header": {
			Corrupted, End{Counted: 1}, steps{withHeader, accepted, committed, headed(map[string]string{"a": "1", "b": ""})},
		},
		"all headers lost":   {Corrupted, End{Counted: 1}, steps{withHeader, accepted, committed, got(1, false)}},
		"invented header":    {Corrupted, End{Counted: 1}, append(clean[:3:3], headed(map[string]string{"a": "1"}))},
		"overwritten":        {Corrupted, End{Counted: 1}, append(clean[:3:3], again, as("paid", "second"))},
		"without a fault":    {Dup, End{Counted: 2}, append(delivered[:4:4], got(2, false))},
		"not flagged":        {Dup, broken, append(delivered[:4:4], got(1, false))},
		"wrongly parked":     {Parked, End{Parked: one}, clean},
		"on its way":         {Stuck, End{Underway: one}, clean},
		"on its way, unsent": {Stuck, End{Counted: 1, Underway: some}, delivered},
		"both verdicts":      {Contradiction, End{Counted: 1}, append(delivered[:4:4], both)},
		"left in Redis":      {Leftover, End{Counted: 1, Left: []string{"msghandler:{00}:p:m:1"}}, delivered},
		"undeleted marker":   {Leftover, End{Counted: 1, Markers: []string{"p/1"}}, delivered},
		"no effect":          {Effect, End{Counted: 1, Effects: map[string]int{}}, delivered},
		"one effect":         {"", End{Counted: 1, Effects: map[string]int{"p/1": 1}}, delivered},
		"two effects":        {Effect, End{Counted: 1, Effects: map[string]int{"p/1": 2}}, delivered},
		"effect of nothing":  {Effect, End{Parked: one, ParkedExplained: true, Effects: map[string]int{"p/1": 1}}, clean},
		"counted twice":      {Account, End{Counted: 2}, delivered},
		"not counted":        {Account, End{Counted: 0}, delivered},
		"refused, and came":  {"", End{Counted: 0, Open: 1}, delivered},
		"refused only":       {"", End{Counted: 1, Open: 1}, delivered},
		"one copy too many": {
			Account,
			End{Counted: 0, Open: 1, CopiesExplained: true},
			append(delivered[:4:4], got(2, false)),
		},
		"redelivered":       {"", End{Counted: 1, CopiesExplained: true}, append(delivered[:4:4], got(1, true))},
		"redelivered alone": {"", End{Counted: 1, CopiesExplained: true}, append(clean[:3:3], got(1, true))},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger()
			for _, step := range row.done {
				step(l)
			}
			found := Check(l, row.end)
			switch {
			case row.want == "" && len(found) > 0:
				t.Errorf("found %v in a clean ledger", found)
			case row.want != "" && (len(found) != 1 || found[0].Verdict != row.want):
				t.Errorf("found %v, want one %s", found, row.want)
			}
		})
	}
}

func TestFirstTransactionEndCounts(t *testing.T) {
	t.Parallel()
	l := NewLedger()
	if ended := l.Decide("p/1", RolledBack); ended != RolledBack {
		t.Errorf("the tombstone gave %v", ended)
	}
	if ended := l.Decide("p/1", Committed); ended != RolledBack {
		t.Errorf("a commit after the tombstone gave %v", ended)
	}
}

func TestFoldDropsEndedHistories(t *testing.T) {
	t.Parallel()
	l, content := NewLedger(), NewContent("orders", "paid", nil, []byte("body"))
	for _, key := range []string{"p/ended", "p/waiting"} {
		l.Sending(key, content)
		l.Accepted(key)
		l.Decide(key, Committed)
	}
	l.Got("p/ended", Copy{content, 1, false})
	l.Fold(-time.Second)
	if strings.Contains(l.History("p/ended"), "sends") || !strings.Contains(l.History("p/waiting"), "sends") {
		t.Errorf("the histories are\n%s\nand\n%s", l.History("p/ended"), l.History("p/waiting"))
	}
	l.Got("p/ended", Copy{content, 1, false})
	found := Check(l, End{Counted: -1, CopiesExplained: true})
	if len(found) != 2 || found[0].Verdict != Dup || found[1].Verdict != Lost {
		t.Errorf("found %v, want the unflagged copy and the lost message", found)
	}
}

func TestHistoryIncludesFaults(t *testing.T) {
	t.Parallel()
	l := NewLedger()
	l.Sending("p/1", Content{})
	l.Fault("the coordinator is killed")
	l.Accepted("p/1")
	l.Noted("p/2", "producer", "something else")
	h := l.History("p/1")
	sent, killed, accepted := strings.Index(h, "sends"), strings.Index(h, "killed"), strings.Index(h, "accepted")
	if sent < 0 || killed < sent || accepted < killed || strings.Contains(h, "something else") {
		t.Errorf("the history is\n%s", h)
	}
}

func TestUnfinishedJournalLineIsIgnored(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	j, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	j.ended("1", Committed)
	j.end("2", Committed, func() {
		again, err := openJournal(path)
		if err != nil {
			t.Fatal(err)
		}
		if again.fate("1") != Committed || again.fate("2") != Undecided {
			t.Errorf("after a death: %v and %v", again.fate("1"), again.fate("2"))
		}
		if again.ended("2", RolledBack) != RolledBack || again.ended("2", Committed) != RolledBack {
			t.Error("the first end of a transaction does not stay")
		}
	})
	lines, _, err := readJournal(path)
	if err != nil || len(lines) < 2 || lines[1] != (entry{lineEnded, "2", wordRolledBack}) {
		t.Errorf("the journal holds %v, %v", lines, err)
	}
}

// A committed message reaches the broker before the later messages of its chain.
func TestCheckerFindsOvertakenMessages(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		reached  []string
		fate     Fate
		together bool
		want     Verdict
	}{
		"in order":                   {reached: []string{"p/1", "p/2"}, fate: Committed},
		"overtaken":                  {reached: []string{"p/2", "p/1"}, fate: Committed, want: OutOfOrder},
		"overtaken, and not there":   {reached: []string{"p/2"}, fate: Committed, want: OutOfOrder},
		"a copy after its successor": {reached: []string{"p/1", "p/2", "p/1"}, fate: Committed},
		"rolled back":                {reached: []string{"p/2"}, fate: RolledBack},
		"stored at the same time":    {reached: []string{"p/2", "p/1"}, fate: Committed, together: true},
	} {
		l := NewLedger()
		content := NewContent("orders", "paid", nil, nil)
		store := func(key string, fate Fate) {
			l.Ordered(key, "p/k")
			l.Sending(key, content)
			l.Accepted(key)
			l.Decide(key, fate)
		}
		store("p/1", row.fate)
		store("p/2", Committed)
		now := time.Now()
		l.entries["p/1"].AcceptedAt, l.entries["p/2"].SentAt = now, now.Add(time.Second)
		if row.together {
			l.entries["p/2"].SentAt = now.Add(-time.Second)
		}
		for _, key := range row.reached {
			l.Reached(key)
		}
		var got Verdict
		for _, f := range l.overtaken() {
			got = f.Verdict
		}
		if got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}
