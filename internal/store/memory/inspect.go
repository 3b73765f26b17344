package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Get implements halfmsg.Inspector.
func (s *Store) Get(_ context.Context, name halfmsg.Name) (halfmsg.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(name)
	if e == nil {
		return halfmsg.Record{}, halfmsg.ErrNotFound
	}
	r := e.record()
	if e.due.Equal(behindDue) {
		r.DueAt, r.HeldBy = time.Time{}, s.first(e.Producer, e.OrderingKey).ID
	}
	return r, nil
}

// Peek is Get for tests of existing messages.
func (s *Store) Peek(name halfmsg.Name) halfmsg.Record {
	r, _ := s.Get(context.Background(), name)
	return r
}

// Count says how many messages stand in a state.
func (s *Store) Count(state halfmsg.State) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if e.State == state {
			n++
		}
	}
	return n
}

func (e *entry) record() halfmsg.Record {
	r := halfmsg.Record{
		Message: e.Message, State: e.State, CreatedAt: e.CreatedAt, UpdatedAt: e.updated, DueAt: e.due,
		ConfirmAttempts: e.ConfirmAttempts, PublishAttempts: e.PublishAttempts, DeleteAttempts: e.DeleteAttempts,
		LastError: e.cause, ErrorAt: e.failed, LeaseOwner: string(e.Token), SendableAt: e.SendableAt,
		AwaitedSince: e.AwaitedSince, Timeline: slices.Clone(e.timeline),
	}
	if e.Token != "" {
		r.LeaseUntil = e.due
	}
	return r
}

// line is the record as listings have it.
func (e *entry) line() halfmsg.Record {
	r := e.record()
	r.Body, r.Timeline = nil, nil
	return r
}

// place is where an entry stands in a listing.
type place struct {
	created time.Time
	name    halfmsg.Name
}

func (e *entry) place() place { return place{e.CreatedAt, e.Name} }

func (p place) compare(q place) int {
	return cmp.Or(p.created.Compare(q.created), strings.Compare(p.name.String(), q.name.String()))
}

func (p place) cursor() string { return fmt.Sprintf("%d %s", p.created.UnixNano(), p.name) }

func parseCursor(cursor string) (p place, err error) {
	if cursor == "" {
		return place{}, nil
	}
	at, name, _ := strings.Cut(cursor, " ")
	nanos, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return place{}, fmt.Errorf("cursor %q: %w", cursor, err)
	}
	p.created = time.Unix(0, nanos)
	p.name, err = halfmsg.ParseName(name)
	return p, err
}

// List implements halfmsg.Inspector.
func (s *Store) List(_ context.Context, query halfmsg.Query) (page halfmsg.Page, err error) {
	after, err := parseCursor(query.Cursor)
	if err != nil {
		return page, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.standing(query.State) {
		switch {
		case query.Producer != "" && e.Producer != query.Producer, e.place().compare(after) <= 0:
			continue
		case s.now().Sub(e.CreatedAt) < query.MinAge:
			return page, nil
		case len(page.Records) == query.Limit, query.Scan > 0 && page.Looked == query.Scan:
			page.Next = after.cursor()
			return page, nil
		}
		after = e.place()
		page.Looked++
		if r := e.line(); query.Matches(&r) {
			page.Records = append(page.Records, r)
		}
	}
	return page, nil
}

// Sample implements halfmsg.Inspector. The sample is always complete.
func (s *Store) Sample(_ context.Context, query halfmsg.Query) (sample halfmsg.Sample, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.standing(query.State) {
		if query.Producer != "" && e.Producer != query.Producer || s.now().Sub(e.CreatedAt) < query.MinAge {
			continue
		}
		sample.Looked++
		sample.Total++
		if r := e.line(); query.Matches(&r) {
			sample.Records = append(sample.Records, halfmsg.Sampled{Record: r, Weight: 1})
		}
	}
	return sample, nil
}

// Find implements halfmsg.Inspector.
func (s *Store) Find(_ context.Context, id string, _ []string) (found []halfmsg.Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.entries {
		if e := s.find(name); name.ID == id && e != nil {
			found = append(found, e.line())
		}
	}
	slices.SortFunc(found, func(a, b halfmsg.Record) int { return strings.Compare(a.Producer, b.Producer) })
	return found, nil
}

// standing lists the entries of a state, oldest first.
func (s *Store) standing(state halfmsg.State) (all []*entry) {
	for _, e := range s.entries {
		if e.State == state {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int { return a.place().compare(b.place()) })
	return all
}

// Stats implements halfmsg.Inspector.
func (s *Store) Stats(context.Context) ([]halfmsg.Stat, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var stats []halfmsg.Stat
	for _, state := range slices.Sorted(slices.Values(halfmsg.Unfinished())) {
		stat := halfmsg.Stat{State: state}
		all := s.standing(state)
		if state == halfmsg.Pending {
			stat.Producers = map[string]int64{}
			for _, e := range all {
				stat.Producers[e.Producer]++
			}
		}
		for _, e := range all {
			if e.due.Equal(behindDue) {
				stat.Held++
			}
		}
		if len(all) > 0 {
			stat.Count, stat.OldestAt = int64(len(all)), all[0].CreatedAt
			if state.HasLoop() {
				stat.FirstDueAt = slices.MinFunc(all, func(a, b *entry) int { return a.due.Compare(b.due) }).due
				if stat.FirstDueAt.Equal(behindDue) {
					stat.FirstDueAt = time.Time{}
				}
			}
		}
		stats = append(stats, stat)
	}
	return stats, nil
}
