package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/ground/assert"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// The flags of a rule: what a move does beyond the change of state. FLAGS in move.lua has the same letters.
const (
	needsLease     = "o" // only the lease's owner may make the move
	countsConfirm  = "c"
	countsPublish  = "p"
	countsDeletion = "d"
	countsCopy     = "y"
	resetsAttempts = "z"
	writesTime     = "u" // the move is a change worth a time
)

// effects are the flags of an event, without needsLease.
var effects = map[halfmsg.Event]string{
	halfmsg.EventUnknown:     countsConfirm + writesTime,
	halfmsg.EventUnreachable: writesTime,
	halfmsg.EventGivenUp:     countsConfirm + writesTime,
	halfmsg.EventTimedOut:    writesTime,
	halfmsg.EventRefused:     countsPublish + countsCopy + writesTime,
	halfmsg.EventUnsure:      countsCopy + writesTime,
	halfmsg.EventExhausted:   countsPublish + countsCopy + writesTime,
	halfmsg.EventMarkerKept:  countsDeletion + writesTime,
	halfmsg.EventRetry:       resetsAttempts + writesTime,
}

// hurried are the failures with an immediate retry when a Submit or Retry came while the lease holder worked on the
// message.
var hurried = map[halfmsg.Event]bool{
	halfmsg.EventUnknown: true, halfmsg.EventGivenUp: true, halfmsg.EventTimedOut: true, halfmsg.EventRefused: true,
	halfmsg.EventExhausted: true, halfmsg.EventMarkerKept: true,
}

// rules are the moves as move.lua reads them, by event: the next states, the flags, and the name in timelines.
var rules = func() []string {
	out := make([]string, len(halfmsg.Events()))
	for i, event := range halfmsg.Events() {
		out[i] = nextStates(event) + nextStatesAfterRetry(event) + effects[event]
		if event.NeedsLease() {
			out[i] += needsLease
		}
		if event.OnTimeline() {
			out[i] += " " + event.String()
		}
	}
	return out
}()

// nextStates holds the next state from each kept state, one character each.
func nextStates(event halfmsg.Event) string {
	var text strings.Builder
	for _, from := range halfmsg.Unfinished() {
		if to, legal := halfmsg.Next(from, event); legal {
			text.WriteString(strconv.Itoa(codeOf[to]))
		} else {
			text.WriteByte('-')
		}
	}
	return text.String()
}

// nextStatesAfterRetry is nextStates for a message whose Submit or Retry came meanwhile: the event, then a retry.
func nextStatesAfterRetry(event halfmsg.Event) string {
	var text strings.Builder
	for _, from := range halfmsg.Unfinished() {
		to, legal := halfmsg.Next(from, event)
		if legal && hurried[event] {
			to, legal = halfmsg.Next(to, halfmsg.EventRetry)
			text.WriteString(strconv.Itoa(codeOf[to]))
		}
		if !legal || !hurried[event] {
			text.WriteByte('-')
		}
	}
	return text.String()
}

// Settle implements halfmsg.Settler.
func (s *Store) Settle(ctx context.Context, settlements []halfmsg.Settlement) []halfmsg.Result {
	results := make([]halfmsg.Result, len(settlements))
	foreign := false
	for i := range settlements {
		if event := settlements[i].Event; !event.NeedsLease() {
			results[i].Err = fmt.Errorf("%w: %s is no owner's word", halfmsg.ErrIllegal, event)
			foreign = true
		}
	}
	places := s.keyedPlaces(len(settlements), func(i int) halfmsg.Name { return settlements[i].Name },
		func(i int) string { return settlements[i].OrderingKey })
	if foreign {
		places, _ = split(places, func(at place) bool { return results[at.index].Err == nil })
	}
	of := func(i int) halfmsg.Settlement { return settlements[i] }
	urgent, backlog := split(places, func(at place) bool { return !of(at.index).Backlog })
	if !s.config.indexed {
		urgent = s.settlePaged(ctx, settlements, urgent, results)
	}
	s.move(ctx, urgent, results, moving{by: rules, of: of, run: s.pacer.urgent})
	prompt, backlog := split(backlog, func(at place) bool { return of(at.index).Prompt })
	s.move(ctx, prompt, results, moving{
		by: rules, of: of, run: s.pacer.backlog(promptSlice, noRests), most: portion(len(prompt)),
	})
	s.move(ctx, backlog, results, moving{
		by: rules, of: of, run: s.pacer.backlog(slice, backlogRests), most: portion(len(backlog)),
	})
	for i := range settlements {
		assertStored(settlements[i].Event, settlements[i].Name, results[i])
	}
	return results
}

// split separates the wanted places from the others.
func split(places []place, want func(place) bool) (wanted, others []place) {
	for i, at := range places {
		if want(at) {
			wanted = append(slices.Grow(wanted, len(places)-i), at)
		} else {
			others = append(slices.Grow(others, len(places)-i), at)
		}
	}
	return wanted, others
}

// bring makes one move that needs no lease for many messages, by the rules given. All messages get the same word.
func (s *Store) bring(
	ctx context.Context, word halfmsg.Settlement, names []halfmsg.Name, by []string,
) []halfmsg.Result {
	results := make([]halfmsg.Result, len(names))
	places := s.places(len(names), func(i int) halfmsg.Name { return names[i] })
	of := func(i int) halfmsg.Settlement {
		word.Name = names[i]
		return word
	}
	bring := func(places []place) { s.move(ctx, places, results, moving{by: by, of: of, run: run}) }
	bring(places)
	name := func(i int) halfmsg.Name { return names[i] }
	s.follow(ctx, len(names), name, func(i int) bool { return isNotFound(results[i].Err) }, bring)
	return results
}

// Retry implements halfmsg.Inspector. The operator's name takes the place of the token.
func (s *Store) Retry(ctx context.Context, names []halfmsg.Name, by, reason string) []halfmsg.Result {
	word := halfmsg.Settlement{Event: halfmsg.EventRetry, Token: halfmsg.Token(by), Cause: reason}
	return assertMoved(word.Event, names, s.bring(ctx, word, names, rules))
}

// Discard implements halfmsg.Inspector.
func (s *Store) Discard(ctx context.Context, names []halfmsg.Name, from halfmsg.State) []halfmsg.Result {
	by := rules
	if from != halfmsg.None {
		by = slices.Clone(rules)
		by[halfmsg.EventDiscard] = onlyFrom(from, rules[halfmsg.EventDiscard])
	}
	word := halfmsg.Settlement{Event: halfmsg.EventDiscard}
	return assertMoved(word.Event, names, s.bring(ctx, word, names, by))
}

// onlyFrom is a rule for one state alone.
func onlyFrom(from halfmsg.State, rule string) string {
	limited := []byte(rule)
	for i, state := range halfmsg.Unfinished() {
		if state != from {
			limited[i] = '-'
		}
	}
	return string(limited)
}

// moving describes how messages are moved: the rules, the word of each message, the urgency, and the most messages in a
// call.
type moving struct {
	by   []string
	of   func(int) halfmsg.Settlement
	run  runner
	most int
}

// move calls move.lua, with only the rules of the batch.
func (s *Store) move(ctx context.Context, places []place, results []halfmsg.Result, m moving) {
	if len(places) == 0 {
		return
	}
	said := make([]int, len(results))
	p := plan{
		store: s, room: 3, most: m.most,
		head: func(places []place) []any {
			words := newWords(m.by)
			for _, at := range places {
				said[at.index] = words.add(m.of(at.index))
			}
			return words.args()
		},
		each: func(args []any, i int) []any {
			word := m.of(i)
			return append(args, word.Name.ID, said[i], word.Fingerprint)
		},
	}
	client := s.loops
	if !m.of(places[0].index).Event.NeedsLease() {
		client = s.intake
	}
	calls := p.calls(places)
	m.run(ctx, client, s.scripts.move, calls)
	for _, c := range calls {
		for n, i := range c.items {
			results[i] = s.result(c, n, m.of(i).Name)
		}
		s.noteSuccessors(c)
	}
}

// shorten cuts a cause to the kept length, and replaces invalid UTF-8.
func shorten(cause string) string {
	cause = strings.ToValidUTF8(cause, "?")
	if len(cause) <= halfmsg.MaxCause {
		return cause
	}
	if runes := []rune(cause); len(runes) > halfmsg.MaxCause {
		return string(runes[:halfmsg.MaxCause])
	}
	return cause
}

// setAside moves a claimed message that cannot be processed to a state for operators, and returns that state.
func (s *Store) setAside(ctx context.Context, claim halfmsg.Claim, why error) halfmsg.State {
	assert.Always(claim.Token != "", "a message is set aside by its claim", claim.Producer, claim.ID)
	event := halfmsg.EventGivenUp
	switch claim.State {
	case halfmsg.Sendable:
		event = halfmsg.EventExhausted
	case halfmsg.Acknowledged:
		event = halfmsg.EventMarkerLeft // the broker has the message, and the callback target is lost
	default:
	}
	settled := s.Settle(context.WithoutCancel(ctx), []halfmsg.Settlement{{
		Name: claim.Name, OrderingKey: s.keyOf(ctx, claim), Token: claim.Token, Event: event, Cause: why.Error(),
		After: time.Hour,
	}})
	s.logger.Error("message set aside: its record cannot be read", "message_id", claim.Name.String(),
		"state", settled[0].State.String(), "cause", why, "settle_error", settled[0].Err)
	return settled[0].State
}
