package redis

import (
	"cmp"
	"context"
	"slices"
)

// dueGroup is the due messages of one producer in one shard.
type dueGroup struct {
	shard    int
	producer string
	times    []int64 // oldest first
	more     bool    // more may be due than times holds
	take     int     // how many to claim
}

// due asks every shard for due messages, of each producer in wanted, or of all. Each call begins with another shard, so
// that among equals no shard is always last. Shards whose master is known not to answer are left out. Some of the
// messages that are parked for the brokers of the claim become due before; parked says that more of them may be parked.
func (s *Store) due(
	ctx context.Context, want claiming, wanted map[string]int,
) (groups []dueGroup, parked bool, err error) {
	most := 0
	for _, n := range wanted {
		most = max(most, n)
	}
	reachable, err := s.reachable(ctx)
	if err != nil {
		return nil, false, err
	}
	shards := len(reachable)
	// Messages are spread evenly over the shards: four times a shard's share, and a few, is nearly always enough.
	most = min(most, 4*most/shards+16)
	calls := make([]*call, shards)
	start := int(s.claims.Load() % uint64(shards)) //nolint:gosec // the remainder is small
	for i := range calls {
		shard := reachable[(start+i)%shards]
		c := newCall(s.keys.shards[shard], 5+len(want.brokers)+2*len(wanted))
		c.messages, c.most = slice, most // where it is repeated, for pages
		c.items = []int{shard}
		c.args = append(c.args, codeOf[want.state], most, pageWork, s.pageTurns[shard].Load(), len(want.brokers))
		c.args = append(c.args, anys(want.brokers)...)
		for producer, n := range wanted {
			if producer != "" && n > 0 {
				c.args = append(c.args, producer, n)
			}
		}
		calls[i] = c
	}
	s.runDue(ctx, calls)
	return s.readDue(calls, most)
}

// anys are texts as arguments.
func anys(texts []string) []any {
	args := make([]any, len(texts))
	for i, text := range texts {
		args[i] = text
	}
	return args
}

// dueHead is how many answers of due.lua precede those about producers.
const dueHead = 2

func (s *Store) readDue(calls []*call, most int) (groups []dueGroup, parked bool, err error) {
	var errs []error
	for _, c := range calls {
		errs = append(errs, c.err)
		parked = parked || counted(c, 1) > 0
		for _, reply := range c.reply[min(dueHead, len(c.reply)):] {
			fields, _ := reply.([]any)
			if len(fields) < 2 {
				continue
			}
			producer, _ := fields[0].(string)
			if why, is := fields[1].(string); is {
				s.reportFault(c.shard+producer, why)
				continue
			}
			g := dueGroup{shard: c.items[0], producer: producer, more: len(fields)-1 >= most}
			for _, field := range fields[1:] {
				ms, _ := field.(int64)
				g.times = append(g.times, ms)
			}
			groups = append(groups, g)
		}
	}
	return groups, parked, firstOf(errs)
}

// reportFault logs a part of the work of due.lua that failed. The rest of the pass goes on.
func (s *Store) reportFault(what, why string) {
	if _, due := s.faults.Due(what); due {
		s.logger.Error("due messages not found: a part of a pass failed; the next pass tries again; report the cause",
			"key", what, "cause", why)
	}
}

// firstOf is a single error for all shards: shards tend to fail for the same reason.
func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// chooseOldest decides how many messages each group gives, so that the longest due messages of every producer come
// first. The result says whether a group may have more to give than its reply listed.
func chooseOldest(groups []dueGroup, shares map[string]int) (hidden bool) {
	type one struct {
		at    int64
		group int
	}
	byProducer := map[string][]one{}
	for i, g := range groups {
		for _, at := range g.times {
			byProducer[g.producer] = append(byProducer[g.producer], one{at, i})
		}
	}
	for producer, ones := range byProducer {
		slices.SortStableFunc(ones, func(a, b one) int { return cmp.Compare(a.at, b.at) })
		for _, o := range ones[:min(len(ones), max(0, shares[producer]))] {
			groups[o.group].take++
		}
	}
	for _, g := range groups {
		hidden = hidden || g.more && g.take == len(g.times)
	}
	return hidden
}

// fairShares divides limit among producers: no producer gets more than an equal part while another producer wants more.
// When there are more producers than messages to give, turn says who comes first.
func fairShares(groups []dueGroup, limit, turn int) map[string]int {
	due := map[string]int{}
	for _, g := range groups {
		due[g.producer] += len(g.times)
	}
	waiting := make([]string, 0, len(due))
	for producer := range due {
		waiting = append(waiting, producer)
	}
	slices.Sort(waiting)
	if n := len(waiting); n > 0 {
		waiting = append(waiting[turn%n:], waiting[:turn%n]...)
	}
	shares := make(map[string]int, len(due))
	for limit > 0 && len(waiting) > 0 {
		part := max(1, limit/len(waiting))
		var still []string
		for _, producer := range waiting {
			n := min(part, due[producer]-shares[producer], limit)
			shares[producer] += n
			limit -= n
			if shares[producer] < due[producer] {
				still = append(still, producer)
			}
		}
		waiting = still
	}
	return shares
}
