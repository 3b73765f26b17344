package redis

import (
	"context"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// New messages are paged: their state is a cell, and their ids are in a page. The scripts of this file do the ordinary
// moves of paged messages. Whatever they leave is done by the other scripts, which put the messages into the indexes
// first.

// pagedToken ends the tokens of messages that were claimed while they were paged.
const pagedToken = "+"

func (s *Store) newPagedToken() string { return s.newToken() + pagedToken }

// page stores new messages in pages, and returns the places of those that it has left.
func (c *creation) page(ctx context.Context, places []place) (left []place) {
	s := c.store
	calls := c.plan.calls(places)
	s.runReplicated(ctx, s.scripts.createPaged, calls)
	for _, call := range calls {
		now, _ := call.answer(0).(int64)
		group := 0 // the answers after the time are one for each producer
		for n, at := range places[:len(call.items)] {
			if n == 0 || at.producer != places[n-1].producer {
				group++
			}
			switch {
			case call.err != nil:
				c.results[at.index].Err = call.err
			case call.answer(group) == int64(1):
				c.results[at.index].State = halfmsg.Pending
				c.keep(at.index, now)
			default:
				left = append(left, at)
			}
		}
		places = places[len(call.items):]
	}
	return left
}

// submitPaged claims paged messages and returns the places of those that it has left.
func (b *submission) submitPaged(ctx context.Context, places []place) (left []place) {
	s, how := b.store, b.how
	// A trusted Submit with a delay leaves the message without an owner.
	places, left = split(places, func(at place) bool {
		return how.event == halfmsg.EventSubmit || b.known[at.index].message.Delay == 0
	})
	to, _ := halfmsg.Next(halfmsg.Pending, how.event)
	token := s.newPagedToken()
	p := plan{
		store: s, room: 2, looks: true,
		head: always(codeOf[to], token, leaseMS(how.lease), claimRoom(places)),
		each: func(args []any, i int) []any { return append(args, b.names[i].ID, b.known[i].whenPaged()) },
	}
	for _, c := range s.makeMoves(ctx, submitPart, p.calls(places)) {
		now, _ := c.answer(len(c.items)).(int64)
		for n, i := range c.items {
			r := halfmsg.Submitted{Result: halfmsg.Result{Err: c.err}}
			if c.err == nil {
				r = s.pagedClaim(c.answer(n), b.names[i], to, token, &b.known[i])
			}
			switch {
			case r.Claim == nil && r.Err == nil:
				left = append(left, places[n])
				continue
			case r.Claim != nil:
				r.Claim.ClaimedAt = timeAt(now)
				if to == halfmsg.Sendable {
					r.Claim.State, r.Claim.SendableAt = to, timeAt(now)
				}
			}
			b.results[i] = r
		}
		places = places[len(c.items):]
	}
	return left
}

// pagedClaim reads the answer of submit_paged.lua about one message. An unreadable record gives both a claim, with at
// least the name and the token, and an error.
func (s *Store) pagedClaim(
	answer any, name halfmsg.Name, state halfmsg.State, token string, known *stored,
) (r halfmsg.Submitted) {
	switch answer := answer.(type) {
	case int64:
		if answer == 1 {
			r.State, r.Claim = state, known.claim(token, time.Time{})
		}
	case []any:
		claim := halfmsg.Claim{Message: halfmsg.Message{Name: name}, State: state, Token: halfmsg.Token(token)}
		r.State, r.Claim = state, &claim
		record, _ := answer[len(answer)-1].(string)
		t, err := decode([]byte(record), state, &claim.Message)
		if err != nil {
			r.Err = corrupt(s.keys.record(name), err.Error())
		}
		claim.CreatedAt, claim.Fingerprint = timeAt(number(answer[0])), t.digest
	}
	return r
}

// pagedFrom is the state that an ordinary move of a paged message leads from; None for all other moves. A lease must
// not end before the page of the message falls due: no loop would find the message in time.
func pagedFrom(word *halfmsg.Settlement) halfmsg.State {
	if word.Backlog || word.Cause != "" || !strings.HasSuffix(string(word.Token), pagedToken) {
		return halfmsg.None
	}
	switch {
	case word.Event == halfmsg.EventCommitted && word.Hold >= pageLife,
		word.Event == halfmsg.EventRolledBack && word.Fingerprint != "":
		return halfmsg.Pending
	case word.Event == halfmsg.EventAcked && word.Fingerprint != "":
		return halfmsg.Sendable
	}
	return halfmsg.None
}

// settlePaged makes the ordinary moves of paged messages and returns the places of those that it has left.
func (s *Store) settlePaged(
	ctx context.Context, settlements []halfmsg.Settlement, places []place, results []halfmsg.Result,
) (left []place) {
	for _, from := range []halfmsg.State{halfmsg.Pending, halfmsg.Sendable} {
		var ordinary []place
		ordinary, places = split(places, func(at place) bool { return pagedFrom(&settlements[at.index]) == from })
		if len(ordinary) > 0 {
			left = append(left, s.settlePagedFrom(ctx, from, settlements, ordinary, results)...)
		}
	}
	return append(left, places...)
}

// pagedWord is what settlements of a batch share.
type pagedWord struct {
	to    halfmsg.State
	token halfmsg.Token
	hold  time.Duration
}

func (s *Store) settlePagedFrom(
	ctx context.Context, from halfmsg.State, settlements []halfmsg.Settlement, places []place, results []halfmsg.Result,
) (left []place) {
	wordOf := func(i int) pagedWord {
		of := &settlements[i]
		to, _ := halfmsg.Next(from, of.Event)
		return pagedWord{to: to, token: of.Token, hold: of.Hold}
	}
	said := make([]int, len(settlements))
	p := plan{
		store: s, room: 3,
		head: func(places []place) []any {
			args, numbers := []any{codeOf[from], 0}, map[pagedWord]int{}
			for _, at := range places {
				word := wordOf(at.index)
				if numbers[word] == 0 {
					numbers[word] = len(numbers) + 1
					args = append(args, codeOf[word.to], string(word.token), leaseMS(word.hold))
				}
				said[at.index] = numbers[word]
			}
			args[1] = len(numbers)
			return args
		},
		each: func(args []any, i int) []any {
			return append(args, settlements[i].Name.ID, said[i], settlements[i].Fingerprint)
		},
	}
	for _, c := range s.makeMoves(ctx, settlePart, p.calls(places)) {
		for n, i := range c.items {
			switch {
			case c.err != nil:
				results[i] = halfmsg.Result{Err: c.err}
			case c.answer(n) == int64(1):
				results[i] = halfmsg.Result{State: wordOf(i).to}
			default:
				left = append(left, places[n])
			}
		}
		places = places[len(c.items):]
	}
	return left
}
