// Package checks judges what the coordinators of a world do to messages in Redis, by the calls of the store's scripts:
// leases with porcupine, and which moves, replies and faults a series of runs has covered.
package checks

import (
	"strconv"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/wire"
)

// step is what one call of a script said of one message.
type step struct {
	key  string
	kind stepKind
	// token is the caller's, at the server's time, and hold how long the caller has the lease from then on, both in
	// milliseconds.
	token    string
	at, hold int64
	// replied is when the reply was written.
	replied time.Time
	// answer is the kind of the reply, and state the state of the message after the call.
	answer string
	state  halfmsg.State
	// event is the event of a settled or moved message, of a stored one, and of a Submit; eventKnown says whether there
	// is one.
	event      halfmsg.Event
	eventKnown bool
}

// stepKind is what a step does to the lease.
type stepKind uint8

const (
	// seen: the call has changed no lease.
	seen stepKind = iota
	// claimed: the caller has the lease unless another owner has it.
	claimed
	// taken: the caller has the lease or the message has no owner, also where it had another one before.
	taken
	// freed: the lease had ended, and the message has no owner.
	freed
	// settled: the holder of the lease has moved the message.
	settled
	// refused: the caller has no lease.
	refused
	// moved: a caller without the lease has moved the message.
	moved
	// begun: the message was stored anew.
	begun
	// unknown: something else than a coordinator has changed the message.
	unknown
)

// The kinds of replies, as prelude.lua has them.
const (
	replyOK, replyLost, replyStored, replyHeld, replyRepaired, replyWaits = 0, 20, 60, 70, 80, 90
)

// stepsOf reads a call of a script.
func stepsOf(c wire.ScriptCall) []step {
	if len(c.Reply) == 0 {
		return nil
	}
	switch c.Script {
	case "create":
		return perMessage(c, 2, 5, created)
	case "create_paged":
		return createdPaged(c)
	case "submit":
		return perMessage(c, 7, 2, submitted)
	case "trust":
		return perMessage(c, 7, 3, submitted)
	case "submit_paged":
		return perMessage(c, 7, 2, submittedPaged)
	case "claim":
		return claims(c)
	case "move":
		return moves(c)
	case "settle_paged":
		return settledPaged(c)
	case "replay":
		return perMessage(c, 3, 5, replayed)
	case "repair":
		return repaired(c)
	}
	return nil
}

// Begun lists the messages that a call has stored anew.
func Begun(c wire.ScriptCall) (keys []string) {
	for _, s := range stepsOf(c) {
		if s.kind == begun {
			keys = append(keys, s.key)
		}
	}
	return keys
}

// perMessage reads a call about messages in groups of a producer, which begin at an argument and have so many arguments
// each, with a reply for each message.
func perMessage(c wire.ScriptCall, at, size int, read func(c wire.ScriptCall, reply any) step) (steps []step) {
	eachMessage(c.Args[min(at, len(c.Args)):], size, func(key string, _ []string) {
		if n := len(steps); n < len(c.Reply) {
			s := read(c, c.Reply[n])
			s.key = key
			steps = append(steps, s)
		}
	})
	return steps
}

// eachMessage calls found for each message: producer, number of messages, then the arguments of each, the id first.
func eachMessage(args []string, size int, found func(key string, fields []string)) {
	for len(args) > 2 {
		producer, n := args[0], number(args[1])
		args = args[2:]
		if n*size > len(args) {
			return
		}
		for i := range n {
			found(producer+"/"+args[i*size], args[i*size:(i+1)*size])
		}
		args = args[n*size:]
	}
}

func number(text string) int {
	n, _ := strconv.Atoi(text)
	return max(n, 0)
}

func millis(text string) int64 { return int64(number(text)) }

// coded reads the reply kind + state.
func coded(reply any) (kind int64, state halfmsg.State, is bool) {
	code, is := reply.(int64)
	states := wire.States()
	if !is || code < 0 || int(code%10) >= len(states) {
		return 0, 0, false
	}
	return code - code%10, states[code%10], true
}

// serverTime is Redis's time in the last element of a reply, else the time of the reply.
func serverTime(c wire.ScriptCall) int64 {
	if now, is := c.Reply[len(c.Reply)-1].(int64); is && now > int64(time.Hour) {
		return now
	}
	return c.At.UnixMilli()
}

// answerOf names the form of a reply.
func answerOf(reply any) string {
	switch reply := reply.(type) {
	case int64:
		return kindName(reply - reply%10)
	case []any:
		return "list of " + strconv.Itoa(len(reply))
	case string:
		return "error"
	}
	return "nothing"
}

func created(_ wire.ScriptCall, reply any) step {
	kind, state, _ := coded(reply)
	s := step{answer: answerOf(reply), state: state, event: halfmsg.EventSend}
	s.eventKnown = kind == replyStored || kind == replyRepaired
	if s.eventKnown {
		s.kind = begun
	}
	return s
}

// createdPaged reads the time, and then an answer for each producer.
func createdPaged(c wire.ScriptCall) (steps []step) {
	group, before := 0, ""
	eachMessage(c.Args[1:], 4, func(key string, _ []string) {
		if producer, _, _ := strings.Cut(key, "/"); producer != before {
			group, before = group+1, producer
		}
		if group >= len(c.Reply) {
			return
		}
		s := step{key: key, answer: pagedAnswer(c.Reply[group])}
		if c.Reply[group] == int64(1) {
			s.kind, s.state, s.event, s.eventKnown = begun, halfmsg.Pending, halfmsg.EventSend, true
		}
		steps = append(steps, s)
	})
	return steps
}

// pagedAnswer names a reply of a script for paged messages.
func pagedAnswer(reply any) string {
	switch reply {
	case int64(0):
		return "left"
	case int64(1):
		return "done"
	}
	return answerOf(reply)
}

func replayed(_ wire.ScriptCall, reply any) step {
	kind, state, _ := coded(reply)
	s := step{answer: answerOf(reply), state: state, event: halfmsg.EventReplay, eventKnown: kind == replyStored}
	if s.eventKnown {
		s.kind = begun
	}
	return s
}

// repaired reads {id, what was wrong} for each repair.
func repaired(c wire.ScriptCall) (steps []step) {
	for _, reply := range c.Reply {
		if fields, _ := reply.([]any); len(fields) == 2 {
			steps = append(steps, step{key: c.Args[0] + "/" + text(fields[0]), kind: unknown, answer: "repair"})
		}
	}
	return steps
}

func text(value any) string {
	s, _ := value.(string)
	return s
}
