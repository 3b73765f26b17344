package redis

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

// maxRounds is how often one claim looks again for more when a shard had more than its reply listed. Messages are
// spread evenly, so a second look is rare.
const maxRounds = 4

// parkingTime is how long one claim puts off messages of other brokers and targets, and takes back those parked for its
// own brokers, before it returns what it has.
const parkingTime = 500 * time.Millisecond

// maxLeftOut is how many targets a call leaves out at most: each costs the script as much as a message. Messages of
// further targets are claimed, and their circuits put the messages off.
const maxLeftOut = 500

// PendingProducers implements halfmsg.ConfirmStore. Producers whose shard does not answer are left out; when no shard
// answers, the error says so.
func (s *Store) PendingProducers(ctx context.Context) ([]string, error) {
	shards, err := s.reachable(ctx)
	if err != nil {
		return nil, err
	}
	pipe := s.loops.Pipeline()
	for _, shard := range shards {
		pipe.SMembers(ctx, s.keys.shards[shard]+producersKey)
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

// ClaimPending implements halfmsg.ConfirmStore. A partial failure returns both claims and an error.
func (s *Store) ClaimPending(
	ctx context.Context, quota map[string]int, lease time.Duration, without ...halfmsg.LeftOut,
) ([]halfmsg.Claim, error) {
	left := make(map[string]int, len(quota))
	for producer, n := range quota {
		if n > 0 {
			left[producer] = n
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	return assertClaims(s.claimDue(ctx, claiming{
		state: halfmsg.Pending, lease: lease, without: without,
		wanted: func() map[string]int { return left },
		shares: func([]dueGroup) map[string]int { return left },
		took:   func(producer string, n int) { left[producer] -= n },
	}))
}

// ClaimSendable implements halfmsg.SendStore. A partial failure returns both claims and an error. Due messages for
// other brokers are parked, so that they do not stand before those to claim: a claim for their broker finds them again.
func (s *Store) ClaimSendable(
	ctx context.Context, limit int, lease time.Duration, brokers ...string,
) ([]halfmsg.Claim, error) {
	return assertClaims(s.claimShared(ctx, claiming{state: halfmsg.Sendable, lease: lease, brokers: brokers}, limit))
}

// ClaimAcknowledged implements halfmsg.ConfirmStore. A partial failure returns both claims and an error.
func (s *Store) ClaimAcknowledged(
	ctx context.Context, limit int, lease time.Duration, without ...halfmsg.LeftOut,
) ([]halfmsg.Claim, error) {
	return assertClaims(s.claimShared(ctx, claiming{state: halfmsg.Acknowledged, lease: lease, without: without}, limit))
}

// claimShared claims at most limit due messages of a state, of all producers.
func (s *Store) claimShared(ctx context.Context, want claiming, limit int) ([]halfmsg.Claim, error) {
	if limit <= 0 {
		return nil, nil
	}
	turn := int(s.claims.Load()) //nolint:gosec // a turn may wrap
	want.wanted = func() map[string]int { return map[string]int{"": limit} }
	want.shares = func(groups []dueGroup) map[string]int { return fairShares(groups, limit, turn) }
	want.took = func(_ string, n int) { limit -= n }
	return s.claimDue(ctx, want)
}

// claiming is one claim of many messages.
type claiming struct {
	state halfmsg.State
	lease time.Duration
	// brokers are those whose messages are claimed; none is all.
	brokers []string
	// without are the targets whose messages are not claimed.
	without []halfmsg.LeftOut
	// wanted is how many messages each producer may still give; the producer "" stands for all of them together.
	wanted func() map[string]int
	// shares is how many due messages each producer gives now.
	shares func([]dueGroup) map[string]int
	// took is told of claims.
	took func(producer string, n int)
}

// claimDue finds the due messages, decides which producers give how many, and claims them.
func (s *Store) claimDue(ctx context.Context, want claiming) ([]halfmsg.Claim, error) {
	var all []dueClaim
	var errs []error
	begun := time.Now()
	for round := 1; ; round++ {
		groups, waiting, err := s.due(ctx, want, want.wanted())
		errs = append(errs, err)
		hidden := chooseOldest(groups, want.shares(groups))
		claims, parked, tookAll, err := s.claimChosen(ctx, want, groups)
		errs = append(errs, err)
		for i := range claims {
			want.took(claims[i].Producer, 1)
		}
		all = append(all, claims...)
		more := hidden && tookAll && round < maxRounds || (parked > 0 || waiting) && time.Since(begun) < parkingTime
		if err != nil || !more || !anyLeft(want.wanted()) {
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

// claimChosen claims the messages that chooseOldest chose, and puts off those for other brokers and targets. tookAll
// says whether all of them were there.
func (s *Store) claimChosen(
	ctx context.Context, want claiming, groups []dueGroup,
) (claims []dueClaim, parked int, tookAll bool, err error) {
	token := s.newToken()
	chosen := 0
	for _, g := range groups {
		chosen += g.take
	}
	if chosen == 0 {
		return nil, 0, true, nil
	}
	parts := cutGroups(groups, portion(chosen))
	calls := make([]*call, len(parts))
	for i, part := range parts {
		without := part.leftOut(want.without)
		c := newCall(s.keys.shards[part.shard], 9+len(want.brokers)+4*len(without)+2*len(part.shares))
		c.messages = part.messages
		c.args = append(c.args, s.seen(part.shard)...)
		c.args = append(c.args, codeOf[want.state], token, leaseMS(want.lease), maxClaimBytes/len(parts),
			len(want.brokers))
		c.args = append(append(c.args, anys(want.brokers)...), len(without))
		for _, l := range without {
			c.args = append(c.args, l.Producer, l.Address+" "+l.MarkerStore, leaseMS(l.Wait),
				clamp(l.MaxAge, maxDue).Milliseconds())
		}
		c.args = append(c.args, part.pairs()...)
		calls[i] = c
	}
	s.pacer.backlog(claimSlice, noRests)(ctx, s.loops, s.scripts.claim, calls)
	claims, parked, err = s.readClaims(ctx, calls, want.state, token)
	return claims, parked, len(claims)+parked == chosen, err
}

// part is the messages that one call claims of a shard.
type part struct {
	shard    int
	shares   []share
	messages int
}

// share is how many messages of a producer are claimed.
type share struct {
	producer string
	messages int
}

// leftOut are those of the targets that the messages of the part may have, and no more than a call may name.
func (p *part) leftOut(all []halfmsg.LeftOut) (some []halfmsg.LeftOut) {
	if len(all) == 0 {
		return nil
	}
	producers := make(map[string]bool, len(p.shares))
	for _, s := range p.shares {
		producers[s.producer] = true
	}
	for _, l := range all {
		if producers[l.Producer] && len(some) < maxLeftOut {
			some = append(some, l)
		}
	}
	return some
}

// pairs are the shares in the form of claim.lua, small shares first: the room for bytes that small shares leave free
// goes to the others.
func (p *part) pairs() []any {
	slices.SortStableFunc(p.shares, func(a, b share) int { return cmp.Compare(a.messages, b.messages) })
	pairs := make([]any, 0, 2*len(p.shares))
	for _, s := range p.shares {
		pairs = append(pairs, s.producer, s.messages)
	}
	return pairs
}

// cutGroups cuts the chosen messages into parts of at most so many messages.
func cutGroups(groups []dueGroup, most int) []*part {
	var parts []*part
	open := map[int]*part{} // by shard: the part that has room
	for _, g := range groups {
		for left := g.take; left > 0; {
			p := open[g.shard]
			if p == nil || p.messages == most {
				p = &part{shard: g.shard}
				open[g.shard], parts = p, append(parts, p)
			}
			n := min(left, most-p.messages)
			p.shares = append(p.shares, share{g.producer, n})
			p.messages += n
			left -= n
		}
	}
	return parts
}

// readClaims reads the replies of claim.lua. Messages with unreadable records are set aside.
func (s *Store) readClaims(
	ctx context.Context, calls []*call, state halfmsg.State, token string,
) (claims []dueClaim, parked int, err error) {
	var errs []error
	for _, c := range calls {
		errs = append(errs, c.err)
		if len(c.reply) == 0 {
			continue
		}
		last := len(c.reply) - 1
		now, _ := c.answer(last).(int64)
		for _, reply := range c.reply[:last] {
			fields, _ := reply.([]any)
			if len(fields) == parkedFields {
				parked++
				continue
			}
			if len(fields) != claimFields {
				s.reportUnclaimed(fields)
				continue
			}
			claim, err := s.claim(fields, state, token)
			if err != nil {
				s.setAside(ctx, claim, err)
				continue
			}
			claim.ClaimedAt = timeAt(now)
			due, _ := fields[8].(int64)
			claims = append(claims, dueClaim{claim, due})
		}
	}
	return claims, parked, firstOf(errs)
}

// reportUnclaimed logs the index entries that claim.lua could not claim.
func (s *Store) reportUnclaimed(fields []any) {
	text := [3]string{}
	for i := range min(len(fields), len(text)) {
		text[i], _ = fields[i].(string)
	}
	name := halfmsg.Name{Producer: text[0], ID: text[1]}
	if text[2] == "" {
		s.logger.Warn("index entry without a record removed", "message_id", name.String())
		return
	}
	s.logger.Error("message put off for the longest wait: its keys cannot be worked on", "message_id", name.String(),
		"cause", corrupt(s.keys.record(name), text[2]))
}

// claimFields is how many fields a claim has in a script's reply, parkedFields how many a message that was put off has.
const (
	claimFields  = 10
	parkedFields = 4
)

// claimsIn counts the claims in a reply of claim.lua.
func claimsIn(reply []any) (claims int) {
	for _, answer := range reply {
		if fields, is := answer.([]any); is && len(fields) == claimFields {
			claims++
		}
	}
	return claims
}

// claim reads a claim: producer, id, record, confirms, publishes, copies, sendable_at, deletes, due, awaited. A claim
// whose record cannot be read holds at least the name and the token.
func (s *Store) claim(fields []any, state halfmsg.State, token string) (halfmsg.Claim, error) {
	claim := halfmsg.Claim{State: state, Token: halfmsg.Token(token)}
	claim.Producer, _ = fields[0].(string)
	claim.ID, _ = fields[1].(string)
	claim.ConfirmAttempts = int(number(fields[3]))
	claim.PublishAttempts = int(number(fields[4]))
	claim.Copies = int(number(fields[5]))
	claim.SendableAt = timeAt(number(fields[6]))
	claim.DeleteAttempts = int(number(fields[7]))
	claim.AwaitedSince = timeAt(number(fields[9]))
	record, _ := fields[2].(string)
	t, err := decode([]byte(record), state, &claim.Message)
	if err != nil {
		return claim, corrupt(s.keys.record(claim.Name), err.Error())
	}
	claim.CreatedAt, claim.Fingerprint = t.at, t.digest
	return claim, nil
}

// timeAt is the time of so many milliseconds; 0 is the zero time.
func timeAt(ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
