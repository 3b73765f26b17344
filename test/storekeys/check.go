package storekeys

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// lifetime says whether a key expires.
type lifetime struct {
	name    *regexp.Regexp
	expires bool
}

// ofShard and outside are the keys of no producer, within a shard and beside the shards.
var (
	ofShard = []lifetime{
		{regexp.MustCompile(`^(parked@.*|parked_for|archive|archive_full|archive_dropped|wait)$`), true},
		{regexp.MustCompile(`^(pulse|suspect|coordinators|chart@\d+:\d+)$`), true},
	}
	outside = []lifetime{
		{regexp.MustCompile(`^(meta|audit:[a-z]+)$`), false},
		{regexp.MustCompile(`^(problems|attending:.+|logout:.+)$`), true},
	}
)

// How far a due time and a lease may be ahead of Redis's clock.
const (
	mostDue   = 31 * 24 * time.Hour
	mostLease = time.Hour
	// mostEvents bounds the lines of a timeline.
	mostEvents = halfmsg.MaxHappenings
	// pageSpan is the time of a page, in milliseconds.
	pageSpan = 250
)

// others checks a key of no producer.
func (s *Snapshot) others(key, name string, ttl time.Duration, table []lifetime) {
	for _, l := range table {
		if !l.name.MatchString(name) {
			continue
		}
		if l.expires != (ttl > 0) {
			s.wrong = append(s.wrong, fmt.Sprintf("%s: it expires in %v", key, ttl))
		}
		return
	}
	s.wrong = append(s.wrong, key+": no key has this name")
}

// lasting checks a key of unfinished messages, which must not expire.
func (s *Snapshot) lasting(key string, ttl time.Duration) {
	if ttl > 0 {
		s.wrong = append(s.wrong, fmt.Sprintf("%s: it holds unfinished messages, and expires in %v", key, ttl))
	}
}

// Check lists the contradictions at a time of Redis's clock; none when all keys fit together. After a step of the clock
// the time is zero, and no due time is wrong. The scripts are atomic, so even between two calls there is no
// contradiction. The sweeper repairs those of foreign hands, of a clock that jumped, and of scripts that broke off.
func (s *Snapshot) Check(now time.Time) (wrong []string) {
	wrong = slices.Clone(s.wrong)
	for _, name := range slices.Sorted(maps.Keys(s.Messages)) {
		m := s.Messages[name]
		for _, what := range m.check(now) {
			wrong = append(wrong, name+": "+what)
		}
		if unfinished := m.State() != halfmsg.None && !m.Receipt(); unfinished && !s.listed[m.Home] {
			wrong = append(wrong, name+": its producer is not in the set of producers")
		}
		for state, cell := range m.Cells {
			if what := s.checkPage(m, name, cell); what != "" {
				wrong = append(wrong, fmt.Sprintf("%s: its %v cell: %s", name, state, what))
			}
		}
	}
	wrong = append(append(wrong, s.checkIdle()...), s.checkChains()...)
	slices.Sort(wrong)
	return wrong
}

// checkIdle finds leftovers of producers without unfinished messages.
func (s *Snapshot) checkIdle() (wrong []string) {
	busy := map[string]bool{}
	for _, m := range s.Messages {
		busy[m.Home] = busy[m.Home] || len(m.Cells)+len(m.Due) > 0
	}
	for home := range s.listed {
		if !busy[home] {
			wrong = append(wrong, home+": the producer is in the set of producers, and has no unfinished message")
		}
	}
	for page := range s.paged {
		if home, _, _ := strings.Cut(page, ":page:"); !busy[home] {
			wrong = append(wrong, page+": the page of a producer without unfinished messages")
		}
	}
	return wrong
}

// behind is the due time of a committed message that stands behind another one of its chain.
const behind = 1<<52 - 1

// checkChains checks that only the first message of each chain may be published, and that a chain has unfinished
// messages alone.
func (s *Snapshot) checkChains() (wrong []string) {
	for name, m := range s.Messages {
		inChain := m.OrderingKey != "" && !m.Receipt() && m.State() != halfmsg.Acknowledged
		_, id, _ := strings.Cut(name, "/")
		place, stands := s.chains[chain{m.Home, m.OrderingKey}][id]
		switch {
		case !inChain && m.Key != "":
			wrong = append(wrong, fmt.Sprintf("%s: it is in the chain of %q, and does not belong there", name, m.Key))
		case inChain && (m.Key != m.OrderingKey || !stands):
			wrong = append(wrong, fmt.Sprintf("%s: it has the ordering key %q, and is in the chain of %q", name,
				m.OrderingKey, m.Key))
		}
		due, sendable := m.Due[halfmsg.Sendable]
		first := !inChain || !slices.ContainsFunc(slices.Collect(maps.Values(s.chains[chain{m.Home, m.Key}])),
			func(other float64) bool { return other < place })
		if sendable && (due >= behind) == first {
			wrong = append(wrong, fmt.Sprintf("%s: it is due at %.0f, and that it is the first of its chain is %t", name, due,
				first))
		}
	}
	for c, ids := range s.chains {
		for id := range ids {
			_, producer, _ := strings.Cut(c.home, ":")
			if m := s.Messages[producer+"/"+id]; m == nil || m.Home != c.home || m.Key != c.key {
				wrong = append(wrong, fmt.Sprintf("%s: the chain of %s has the message %s, which is not there", c.home, c.key, id))
			}
		}
	}
	for c := range s.awaited {
		if len(s.chains[c]) == 0 {
			wrong = append(wrong, fmt.Sprintf("%s: the chain of %s is awaited, and empty", c.home, c.key))
		}
	}
	return wrong
}

// checkPage checks whether the page of a cell will fall due.
func (s *Snapshot) checkPage(m *Message, name string, cell Cell) string {
	_, id, _ := strings.Cut(name, "/")
	page := m.Home + ":page:" + strconv.FormatInt(cell.Created/pageSpan, 10)
	if _, due := s.due[page]; !due {
		return "its page has no due time"
	}
	if !s.paged[page][id] {
		return "its page does not name the message"
	}
	return ""
}

func (m *Message) check(now time.Time) (wrong []string) {
	if m.Kind == "" || m.Receipt() {
		return m.checkFinished()
	}
	places := len(m.Cells) + len(m.Due)
	switch {
	case m.Kind != "half" && m.Kind != "pack" && m.Kind != halfmsg.Acknowledged.String():
		wrong = append(wrong, fmt.Sprintf("its record begins with %q", m.Kind))
	case m.TTL > 0:
		wrong = append(wrong, fmt.Sprintf("its record expires in %v, and it is unfinished", m.TTL))
	case places == 0:
		wrong = append(wrong, "it has a record, and neither a cell nor an index entry")
	case places > 1:
		wrong = append(wrong, fmt.Sprintf("it stands in %d places: cells %v, indexes %v", places, m.Cells, m.Due))
	case m.Kind == halfmsg.Acknowledged.String() && m.State() != halfmsg.Acknowledged:
		wrong = append(wrong, fmt.Sprintf("only its marker is left to delete, and it is %v", m.State()))
	}
	for state := range m.Entered {
		if _, due := m.Due[state]; !due {
			wrong = append(wrong, fmt.Sprintf("it has a creation time in %v, and no due time", state))
		}
	}
	for state := range m.Due {
		if _, entered := m.Entered[state]; !entered {
			wrong = append(wrong, fmt.Sprintf("it has a due time in %v, and no creation time", state))
		}
	}
	return append(append(wrong, m.checkLease(now)...), m.checkNotes()...)
}

// checkFinished checks the leftovers of a message without a record, or with a receipt.
func (m *Message) checkFinished() (wrong []string) {
	if m.Receipt() && m.TTL <= 0 {
		wrong = append(wrong, "its receipt does not expire")
	}
	for what, left := range map[string]bool{
		"a cell": len(m.Cells) > 0, "an index entry": len(m.Due) > 0, "a creation time": len(m.Entered) > 0,
		"an ordering key": m.Key != "", "a lease": m.Token != "", "a verdict": m.Verdict != "", "notes": m.Notes != nil,
	} {
		if left {
			wrong = append(wrong, "it has no record, and "+what)
		}
	}
	return wrong
}

// token is INSTANCE/NUMBER.
var token = regexp.MustCompile(`^\S+/\S+$`)

// checkLease checks the lease, the due time and the verdict by the state.
func (m *Message) checkLease(now time.Time) (wrong []string) {
	state, owner := m.State(), m.Owner()
	due := int64(m.Due[state])
	if cell, paged := m.Cells[state]; paged {
		due = cell.Due
		if m.Token != "" || m.Verdict != "" || m.Notes != nil {
			wrong = append(wrong, "it is paged, and has a lease, a verdict or notes beside its cell")
		}
	}
	ahead := time.Duration(due-now.UnixMilli()) * time.Millisecond
	if now.IsZero() || due >= behind {
		ahead = 0
	}
	switch {
	case owner != "" && !state.HasLoop():
		wrong = append(wrong, fmt.Sprintf("it is %v and leased to %s", state, owner))
	case owner != "" && !token.MatchString(owner):
		wrong = append(wrong, fmt.Sprintf("its token is %q", owner))
	case owner != "" && ahead > mostLease:
		wrong = append(wrong, fmt.Sprintf("its lease ends in %v", ahead))
	case ahead > mostDue:
		wrong = append(wrong, fmt.Sprintf("it is due in %v", ahead))
	}
	if want := state == halfmsg.Sendable || state == halfmsg.Dead; m.Judged() != want {
		wrong = append(wrong, fmt.Sprintf("it is %v, and that the time of its verdict stands is %t", state, m.Judged()))
	}
	return wrong
}

// checkNotes checks the counters and the bound of the timeline.
func (m *Message) checkNotes() (wrong []string) {
	for _, counter := range []string{"confirms", "publishes", "copies", "deletes"} {
		if text, noted := m.Notes[counter]; noted {
			if n, err := strconv.Atoi(text); err != nil || n < 0 {
				wrong = append(wrong, fmt.Sprintf("its counter %s is %q", counter, text))
			}
		}
	}
	if lines := strings.Count(m.Notes["events"], "\n") + 1; lines > mostEvents {
		wrong = append(wrong, fmt.Sprintf("its timeline has %d lines", lines))
	}
	return wrong
}

// CheckStats says which counts of a store contradict the keys.
func (s *Snapshot) CheckStats(stats []halfmsg.Stat) (wrong []string) {
	states, pending := s.Counts()
	for _, stat := range stats {
		if stat.Count != states[stat.State] {
			wrong = append(wrong, fmt.Sprintf("%d messages are counted as %v, and %d are", stat.Count, stat.State,
				states[stat.State]))
		}
		delete(states, stat.State)
		if stat.State == halfmsg.Pending && stat.Producers != nil && !maps.Equal(stat.Producers, pending) {
			wrong = append(wrong, fmt.Sprintf("PENDING messages are counted as %v, and are %v", stat.Producers, pending))
		}
	}
	for state, count := range states {
		wrong = append(wrong, fmt.Sprintf("%d messages are %v, and nothing counts them", count, state))
	}
	slices.Sort(wrong)
	return wrong
}
