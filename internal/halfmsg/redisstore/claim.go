package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// maxClaimBytes bounds the bodies that one claim brings into memory; the rest waits in Redis.
const maxClaimBytes = 32 << 20

// maxRounds is how often one claim looks again for more when a shard had more than it told. Messages are spread evenly,
// so a second look is rare.
const maxRounds = 4

// PendingProducers implements halfmsg.ConfirmStore. Producers whose shard does not answer are left out; it is an error
// when none does.
func (s *Store) PendingProducers(ctx context.Context) ([]string, error) {
	pipe := s.loops.Pipeline()
	for _, shard := range s.keys.shards {
		pipe.SMembers(ctx, shard+producersKey)
	}
	cmds, err := pipe.Exec(ctx)
	seen := map[string]bool{}
	answered := false
	for _, cmd := range cmds {
		members, ok := cmd.(interface{ Result() ([]string, error) })
		if !ok {
			continue
		}
		names, err := members.Result()
		answered = answered || err == nil
		for _, name := range names {
			seen[name] = true
		}
	}
	if !answered {
		return nil, translate(cmp.Or(err, ctx.Err()))
	}
	producers := make([]string, 0, len(seen))
	for name := range seen {
		producers = append(producers, name)
	}
	slices.Sort(producers)
	return producers, nil
}

// ClaimPending implements halfmsg.ConfirmStore. When it fails in part it returns both claims and an error.
func (s *Store) ClaimPending(ctx context.Context, quota map[string]int, lease time.Duration) ([]halfmsg.Claim, error) {
	left := make(map[string]int, len(quota))
	for producer, n := range quota {
		if n > 0 {
			left[producer] = n
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	return s.claimDue(ctx, claiming{
		state: halfmsg.Pending, lease: lease,
		wanted: func() map[string]int { return left },
		shares: func([]dueGroup) map[string]int { return left },
		took:   func(producer string, n int) { left[producer] -= n },
	})
}

// ClaimSendable implements halfmsg.SendStore. When it fails in part it returns both claims and an error.
func (s *Store) ClaimSendable(ctx context.Context, limit int, lease time.Duration) ([]halfmsg.Claim, error) {
	return s.claimShared(ctx, halfmsg.Sendable, limit, lease)
}

// ClaimAcknowledged implements halfmsg.ConfirmStore. When it fails in part it returns both claims and an error.
func (s *Store) ClaimAcknowledged(ctx context.Context, limit int, lease time.Duration) ([]halfmsg.Claim, error) {
	return s.claimShared(ctx, halfmsg.Acknowledged, limit, lease)
}

// claimShared claims at most limit due messages of a state, of all producers.
func (s *Store) claimShared(
	ctx context.Context, state halfmsg.State, limit int, lease time.Duration,
) ([]halfmsg.Claim, error) {
	if limit <= 0 {
		return nil, nil
	}
	turn := int(s.claims.Load())
	return s.claimDue(ctx, claiming{
		state: state, lease: lease,
		wanted: func() map[string]int { return map[string]int{"": limit} },
		shares: func(groups []dueGroup) map[string]int { return fairShares(groups, limit, turn) },
		took:   func(_ string, n int) { limit -= n },
	})
}

// claiming is one claim of many messages.
type claiming struct {
	state halfmsg.State
	lease time.Duration
	// wanted is how many messages each producer may still give; the producer "" stands for all of them together.
	wanted func() map[string]int
	// shares says how many each producer gives now, of what is due.
	shares func([]dueGroup) map[string]int
	// took is told of claims.
	took func(producer string, n int)
}

// claimDue looks what is due, decides whom to take it from, and claims that.
func (s *Store) claimDue(ctx context.Context, want claiming) ([]halfmsg.Claim, error) {
	var all []dueClaim
	var errs []error
	for range maxRounds {
		groups, err := s.due(ctx, want.state, want.wanted())
		errs = append(errs, err)
		hidden := chooseOldest(groups, want.shares(groups))
		claims, tookAll, err := s.claimChosen(ctx, want, groups)
		errs = append(errs, err)
		for i := range claims {
			want.took(claims[i].Producer, 1)
		}
		all = append(all, claims...)
		if !hidden || !tookAll || err != nil || !anyLeft(want.wanted()) {
			break
		}
	}
	slices.SortStableFunc(all, func(a, b dueClaim) int { return cmp.Compare(a.due, b.due) })
	claims := make([]halfmsg.Claim, len(all))
	for i := range all {
		claims[i] = all[i].Claim
	}
	return claims, errors.Join(errs...)
}

// dueClaim is a claim and since when it was due, in milliseconds.
type dueClaim struct {
	halfmsg.Claim
	due int64
}

func anyLeft(wanted map[string]int) bool {
	for _, n := range wanted {
		if n > 0 {
			return true
		}
	}
	return false
}

// dueGroup is what one producer has due in one shard.
type dueGroup struct {
	shard    int
	producer string
	times    []int64 // oldest first
	more     bool    // there may be more than times says
	take     int     // how many to claim
}

// due asks every shard what is due, for each producer in wanted, or for all. It begins with another shard each time, so
// that among equals none is always last.
func (s *Store) due(ctx context.Context, state halfmsg.State, wanted map[string]int) ([]dueGroup, error) {
	most := 0
	for _, n := range wanted {
		most = max(most, n)
	}
	shards := len(s.keys.shards)
	// Messages are spread evenly over the shards: four times a shard's share, and a few, is nearly always enough.
	most = min(most, 4*most/shards+16)
	calls := make([]*call, shards)
	start := int(s.claims.Load() % uint64(shards))
	for i := range calls {
		c := newCall(s.scripts.due, s.keys.shards[(start+i)%shards], 2+2*len(wanted))
		c.items = []int{(start + i) % shards}
		c.args = append(c.args, codeOf[state], most)
		for producer, n := range wanted {
			if producer != "" && n > 0 {
				c.args = append(c.args, producer, n)
			}
		}
		calls[i] = c
	}
	run(ctx, s.loops, s.scripts.due, calls)
	return readDue(calls, most)
}

func readDue(calls []*call, most int) ([]dueGroup, error) {
	var groups []dueGroup
	var errs []error
	for _, c := range calls {
		errs = append(errs, c.err)
		for _, reply := range c.reply {
			fields, _ := reply.([]any)
			if len(fields) < 2 {
				continue
			}
			producer, _ := fields[0].(string)
			g := dueGroup{shard: c.items[0], producer: producer, more: len(fields)-1 >= most}
			for _, field := range fields[1:] {
				ms, _ := field.(int64)
				g.times = append(g.times, ms)
			}
			groups = append(groups, g)
		}
	}
	return groups, firstOf(errs)
}

// firstOf is one error for all shards: they tend to fail for one reason.
func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// chooseOldest decides how many messages each group gives, so that of every producer those due longest are taken. It says
// whether a group may have more to give than it told of.
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

// fairShares divides limit among producers: none gets more than its equal part while another wants it. When there are
// more producers than messages to give, turn says who comes first.
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

// claimChosen claims what chooseOldest decided, and says whether all of it was there to claim.
func (s *Store) claimChosen(ctx context.Context, want claiming, groups []dueGroup) ([]dueClaim, bool, error) {
	token := s.newToken()
	chosen := 0
	for _, g := range groups {
		chosen += g.take
	}
	if chosen == 0 {
		return nil, true, nil
	}
	parts := cutGroups(groups, portion(chosen))
	calls := make([]*call, len(parts))
	for i, part := range parts {
		c := newCall(s.scripts.claim, s.keys.shards[part.shard], 7+len(part.pairs))
		c.messages = part.messages
		c.args = append(c.args, s.seen(part.shard)...)
		c.args = append(c.args, codeOf[want.state], token, leaseMS(want.lease), maxClaimBytes/len(parts))
		c.args = append(c.args, part.pairs...)
		calls[i] = c
	}
	s.pacer.backlog(ctx, s.loops, s.scripts.claim, calls)
	claims, err := s.readClaims(ctx, calls, want.state, token)
	return claims, len(claims) == chosen, err
}

// part is what one call claims of a shard: pairs of a producer and how many of its messages.
type part struct {
	shard    int
	pairs    []any
	messages int
}

// cutGroups makes parts of at most so many messages of what is to be claimed.
func cutGroups(groups []dueGroup, most int) []*part {
	var parts []*part
	open := map[int]*part{} // by shard: the one that has room
	for _, g := range groups {
		for left := g.take; left > 0; {
			p := open[g.shard]
			if p == nil || p.messages == most {
				p = &part{shard: g.shard}
				open[g.shard], parts = p, append(parts, p)
			}
			n := min(left, most-p.messages)
			p.pairs = append(p.pairs, g.producer, n)
			p.messages += n
			left -= n
		}
	}
	return parts
}

// readClaims reads the replies of claim.lua. What cannot be worked on is set aside.
func (s *Store) readClaims(ctx context.Context, calls []*call, state halfmsg.State, token string) ([]dueClaim, error) {
	var claims []dueClaim
	var errs []error
	for _, c := range calls {
		errs = append(errs, c.err)
		for _, reply := range c.reply {
			fields, _ := reply.([]any)
			if len(fields) != claimFields {
				s.reportUnclaimed(fields)
				continue
			}
			claim, err := s.claim(fields, state, token)
			if err != nil {
				s.setAside(ctx, claim, err)
				continue
			}
			due, _ := fields[claimFields-1].(int64)
			claims = append(claims, dueClaim{claim, due})
		}
	}
	return claims, firstOf(errs)
}

// reportUnclaimed logs what claim.lua found in an index but could not claim.
func (s *Store) reportUnclaimed(fields []any) {
	text := [3]string{}
	for i := range min(len(fields), len(text)) {
		text[i], _ = fields[i].(string)
	}
	name := halfmsg.Name{Producer: text[0], ID: text[1]}
	if text[2] == "" {
		s.logger.Warn("index entry without a record removed", "message", name.String())
		return
	}
	s.logger.Error("message put off for an hour: its keys cannot be worked on", "message", name.String(),
		"error", corrupt(s.keys.record(name), text[2]))
}

// claimFields is how many fields a claim has in a script's reply.
const claimFields = 9

// claim reads a claim: producer, id, record, confirms, publishes, copies, sendable_at, deletes, due. When its record cannot be read the
// claim holds at least its name and token.
func (s *Store) claim(fields []any, state halfmsg.State, token string) (halfmsg.Claim, error) {
	claim := halfmsg.Claim{State: state, Token: halfmsg.Token(token)}
	claim.Producer, _ = fields[0].(string)
	claim.ID, _ = fields[1].(string)
	claim.ConfirmAttempts = int(number(fields[3]))
	claim.PublishAttempts = int(number(fields[4]))
	claim.Copies = int(number(fields[5]))
	claim.SendableAt = timeAt(number(fields[6]))
	claim.DeleteAttempts = int(number(fields[7]))
	record, _ := fields[2].(string)
	t, err := decode([]byte(record), state, &claim.Message)
	if err != nil {
		return claim, corrupt(s.keys.record(claim.Name), err.Error())
	}
	claim.CreatedAt, claim.Fingerprint = t.at, t.digest
	return claim, nil
}

// timeAt is the time of so many milliseconds; that of none is the zero time.
func timeAt(ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
