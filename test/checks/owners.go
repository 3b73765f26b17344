package checks

import (
	"strings"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/wire"
)

// submitted reads a reply of submit.lua or trust.lua.
func submitted(c wire.ScriptCall, reply any) step {
	s := submission(c, c.Script == "trust")
	s.answer = answerOf(reply)
	if fields, is := reply.([]any); is {
		s.eventKnown = true
		if len(fields) == 3 { // trust.lua has stored the verdict, and the message waits
			s.token = ""
		}
		return s
	}
	kind, state, coded := coded(reply)
	switch {
	case coded && kind == replyHeld:
		s.eventKnown = true
		return s
	case coded && kind == replyStored:
		s.eventKnown, s.token = true, ""
		return s
	}
	s.kind, s.state, s.token, s.hold = seen, state, "", 0
	if coded && kind == replyOK && c.Script == "submit" && state == halfmsg.Pending { // due now, for its holder or others
		s.kind, s.eventKnown = moved, true
	}
	return s
}

// submission is a Submit that has claimed a message. A trusted Submit takes the message from its lease holder.
func submission(c wire.ScriptCall, trusted bool) step {
	s := step{
		kind: claimed, token: c.Args[4], hold: millis(c.Args[5]), at: serverTime(c), state: halfmsg.Pending,
		event: halfmsg.EventSubmit,
	}
	if trusted {
		s.kind, s.state, s.event = taken, halfmsg.Sendable, halfmsg.EventSubmitTrusted
	}
	return s
}

// submittedPaged reads a reply of submit_paged.lua, which claims only messages without an owner.
func submittedPaged(c wire.ScriptCall, reply any) step {
	s := submission(c, wire.States()[number(c.Args[3])] == halfmsg.Sendable)
	s.kind, s.answer, s.eventKnown = claimed, pagedAnswer(reply), true
	if reply == int64(0) {
		return step{answer: s.answer}
	}
	return s
}

// claims reads a reply of claim.lua: the claims, and the messages that were put off or had no record.
func claims(c wire.ScriptCall) (steps []step) {
	for _, reply := range c.Reply {
		fields, _ := reply.([]any)
		if len(fields) < 2 {
			continue
		}
		s := step{
			key: text(fields[0]) + "/" + text(fields[1]), at: serverTime(c), answer: answerOf(reply),
			state: wire.States()[number(c.Args[3])],
		}
		switch len(fields) {
		case 2: // it had no record
			s.kind = unknown
		case 3: // its keys cannot be worked on
			s.kind = unknown
		case 4:
			s.kind = freed
		default:
			s.kind, s.token, s.hold = claimed, c.Args[4], millis(c.Args[5])
		}
		steps = append(steps, s)
	}
	return steps
}

// word is what messages of a call of move.lua share.
type word struct {
	rule  string
	token string
	hold  int64
	cause string
}

// moves reads a call of move.lua.
func moves(c wire.ScriptCall) (steps []step) {
	rules := number(c.Args[0])
	behind := 1 + rules
	words := make([]word, number(c.Args[behind]))
	for i := range words {
		at := behind + 1 + 5*i
		words[i] = word{
			rule: c.Args[number(c.Args[at])], token: c.Args[at+1], hold: millis(c.Args[at+3]), cause: c.Args[at+4],
		}
	}
	eachMessage(c.Args[behind+1+5*len(words):], 3, func(key string, fields []string) {
		said := number(fields[1])
		if n := len(steps); n < len(c.Reply) && said >= 1 && said <= len(words) {
			s := words[said-1].step(c, c.Reply[n])
			s.key = key
			steps = append(steps, s)
		}
	})
	return steps
}

func (w word) step(c wire.ScriptCall, reply any) step {
	kind, state, coded := coded(reply)
	s := step{token: w.token, hold: w.hold, at: serverTime(c), answer: answerOf(reply), state: state}
	s.event, s.eventKnown = wire.EventOf(w.rule, w.cause)
	needsLease := strings.Contains(strings.SplitN(w.rule, " ", 2)[0], "o")
	switch {
	case !coded:
		s.kind, s.eventKnown = seen, false
	case kind == replyOK && needsLease:
		s.kind = settled
	case kind == replyWaits && needsLease: // the message stands behind another one of its chain, without an owner
		s.kind, s.hold = settled, 0
	case kind == replyOK || kind == replyWaits:
		s.kind, s.token = moved, ""
	case kind == replyLost && needsLease:
		s.kind, s.eventKnown = refused, false
	default:
		s.kind, s.eventKnown = seen, false
	}
	return s
}

// settledPaged reads a call of settle_paged.lua.
func settledPaged(c wire.ScriptCall) (steps []step) {
	words := number(c.Args[1])
	from := wire.States()[number(c.Args[0])]
	eachMessage(c.Args[min(2+3*words, len(c.Args)):], 3, func(key string, fields []string) {
		n, said := len(steps), number(fields[1])
		if n >= len(c.Reply) || said < 1 || said > words {
			return
		}
		s := step{key: key, answer: pagedAnswer(c.Reply[n])}
		if c.Reply[n] == int64(1) {
			at := 2 + 3*(said-1)
			s.kind, s.state = settled, wire.States()[number(c.Args[at])]
			s.token, s.hold, s.at = c.Args[at+1], millis(c.Args[at+2]), serverTime(c)
			s.event, s.eventKnown = pagedEvent(from, s.state)
		}
		steps = append(steps, s)
	})
	return steps
}

// pagedEvent is the event by which settle_paged.lua moves a message.
func pagedEvent(from, to halfmsg.State) (halfmsg.Event, bool) {
	for _, event := range []halfmsg.Event{halfmsg.EventCommitted, halfmsg.EventRolledBack, halfmsg.EventAcked} {
		if next, legal := halfmsg.Next(from, event); legal && next == to {
			return event, true
		}
	}
	return 0, false
}
