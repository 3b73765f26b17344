package attend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	// maxLetter holds 500 ids of the greatest length twice over, with their verdicts, in base64.
	maxLetter = 256 << 10
	// maxIncoming is how many questions of other coordinators may be under way.
	maxIncoming = 1000
	// replyTimeout bounds the sending of an answer.
	replyTimeout = time.Second
)

// The kinds of peer messages.
const (
	kindQuestion = "question"
	kindAnswer   = "answer"
	// kindGone answers that no replica attends here any more, kindFailing that only replicas do which fail to answer.
	kindGone    = "gone"
	kindFailing = "failing"
	// kindCheck is of a coordinator to itself: peer messages still arrive.
	kindCheck = "check"
)

// peerMessage is what coordinators send each other, in JSON. Fields of later versions are ignored.
type peerMessage struct {
	Kind string `json:"kind"`
	// ID is of the question, unique among all coordinators.
	ID string `json:"id,omitempty"`
	// From is the mailbox of the sender.
	From string `json:"from"`
	// Producer, Milliseconds and Insist belong to a question: who is asked, how long the sender waits, and whether
	// replicas are to be asked that fail to answer.
	Producer     string `json:"producer,omitempty"`
	Milliseconds int64  `json:"milliseconds,omitempty"`
	Insist       bool   `json:"insist,omitempty"`
	// Body is an AttendQuestion or an AttendAnswer.
	Body []byte `json:"body,omitempty"`
}

var errMessageTooLarge = errors.New("the peer message is too large for the post")

// others are the coordinators among mailboxes that were not asked yet, in random order.
func (a *ask) others(mailboxes []string) []string {
	others := slices.DeleteFunc(slices.Clone(mailboxes), func(m string) bool {
		return m == a.hub.config.Instance || a.asked[m]
	})
	//nolint:gosec // an order of calls is no secret
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return others
}

// send sends a question to a coordinator, which answers to the replies of the ask.
func (h *Hub) send(a *ask, mailbox string, insist bool) (received bool, err error) {
	body, err := proto.Marshal(a.question)
	if err != nil {
		return false, err
	}
	id := h.idPrefix + strconv.FormatUint(h.asks.Add(1), 36)
	results := make(chan outcome, 1)
	h.mu.Lock()
	h.sent[id] = results
	h.mu.Unlock()
	received, err = h.mail(a.ctx, mailbox, peerMessage{
		Kind: kindQuestion, ID: id, Producer: a.producer, Milliseconds: a.left().Milliseconds(), Insist: insist, Body: body,
	})
	if !received || err != nil {
		h.forget(id)
		return false, err
	}
	h.work.Go(func() {
		defer h.forget(id)
		select {
		case o := <-results:
			o.mailbox = mailbox
			select {
			case a.replies <- o:
			case <-a.ctx.Done():
			}
		case <-a.ctx.Done():
		}
	})
	return true, nil
}

func (h *Hub) forget(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sent, id)
}

// mail sends a peer message.
func (h *Hub) mail(ctx context.Context, mailbox string, l peerMessage) (received bool, err error) {
	l.From = h.config.Instance
	text, err := json.Marshal(l)
	if err != nil {
		return false, err
	}
	if len(text) > maxLetter {
		return false, errMessageTooLarge
	}
	return (*h.post.Load()).Send(ctx, mailbox, text)
}

// postPauses are the pauses before peer messages are received again.
var postPauses = backoff.Exponential(100*time.Millisecond, 5*time.Second)

// receive takes peer messages until the Hub is closed.
func (h *Hub) receive(post Post) {
	for failures := 0; h.life.Err() == nil; failures++ {
		ctx, cancel := context.WithCancel(h.life)
		h.work.Go(func() { h.cancelWhenSilent(ctx, cancel) })
		began := time.Now()
		err := post.Receive(ctx, h.config.Instance, h.deliver)
		cancel()
		if h.life.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute {
			failures = 0
		}
		if suppressed, due := h.logged.Due("receive"); due && h.isUsed() {
			h.config.Logger.Warn("no peer messages of other coordinators arrive; they cannot ask producers whose streams "+
				"are here only; the coordinator subscribes again, which needs the channel's permission in Redis (&PREFIX:*)",
				"cause", err, "not_logged_before", suppressed)
		}
		_ = backoff.Sleep(h.life, postPauses.Delay(failures)) // the loop looks whether life has ended
	}
}

// isUsed reports whether producers attend here or are asked elsewhere. Otherwise trouble with the post troubles nobody.
func (h *Hub) isUsed() bool { return h.Streams() > 0 || h.asks.Load() > 0 }

// deliver takes a peer message. It never blocks.
func (h *Hub) deliver(text []byte) {
	var l peerMessage
	if len(text) > maxLetter || json.Unmarshal(text, &l) != nil {
		return // no coordinator sends such peer messages
	}
	h.lastReceived.Store(time.Now().UnixNano())
	switch l.Kind {
	case kindQuestion:
		h.serve(l)
	case kindAnswer:
		answer := &msghandlerv1.AttendAnswer{}
		if proto.Unmarshal(l.Body, answer) != nil {
			return
		}
		h.settleQuestion(l.ID, outcome{answer: answer})
	case kindGone:
		h.settleQuestion(l.ID, outcome{err: errLost})
	case kindFailing:
		h.settleQuestion(l.ID, outcome{err: errOnlyFailing})
	}
}

// settleQuestion hands an outcome to the ask that waits for it.
func (h *Hub) settleQuestion(id string, o outcome) {
	h.mu.Lock()
	results := h.sent[id]
	delete(h.sent, id)
	h.mu.Unlock()
	switch {
	case results != nil:
		results <- o // the only one
	case o.answer != nil:
		h.config.Asked(Late)
	}
}

// serve asks the streams of this coordinator for another, in the background.
func (h *Hub) serve(l peerMessage) {
	question := &msghandlerv1.AttendQuestion{}
	if proto.Unmarshal(l.Body, question) != nil {
		return
	}
	if h.incoming.Add(1) > maxIncoming {
		h.incoming.Add(-1)
		return // the sender's time ends, and it asks elsewhere meanwhile
	}
	h.work.Go(func() {
		defer h.incoming.Add(-1)
		ctx, cancel := context.WithTimeout(h.life, time.Duration(l.Milliseconds)*time.Millisecond)
		defer cancel()
		reply := peerMessage{Kind: kindGone, ID: l.ID}
		failure := lifecycle.Recovered(func() {
			a := &ask{hub: h, producer: l.Producer, question: question, fromPost: true, insist: l.Insist}
			answer, result, err := a.run(ctx)
			reply = h.replyTo(l, answer, result, err)
		})
		if failure != nil {
			h.config.Logger.Error("a question of another coordinator panicked; its coordinator asks elsewhere; see the stack",
				"cause", failure, "stack", string(failure.Stack))
		}
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) { // then nobody waits any more
			h.reply(l.From, reply)
		}
	})
}

// reply sends an answer, also at the end of the Hub.
func (h *Hub) reply(mailbox string, reply peerMessage) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.life), replyTimeout)
	defer cancel()
	_, err := h.mail(ctx, mailbox, reply)
	if err == nil {
		return
	}
	if suppressed, due := h.logged.Due("reply"); due {
		h.config.Logger.Warn("an answer cannot be sent to another coordinator, which asks again; look after Redis",
			"asked_by", mailbox, "cause", err, "not_logged_before", suppressed)
	}
}

// replyTo is the peer message about what came of another coordinator's question.
func (h *Hub) replyTo(l peerMessage, answer *msghandlerv1.AttendAnswer, result string, err error) peerMessage {
	reply := peerMessage{Kind: kindAnswer, ID: l.ID}
	switch result {
	case Failed:
		if err != nil {
			answer = failed(err)
		}
	case Unanswered:
		reply.Kind = kindGone
	case Nobody:
		reply.Kind = kindGone
		if h.attendsHere(l.Producer) {
			reply.Kind = kindFailing
		}
	}
	if reply.Kind != kindAnswer {
		return reply
	}
	body, err := proto.Marshal(answer)
	if err == nil && len(body) > maxLetter*3/4-1024 {
		body, err = proto.Marshal(failed(fmt.Errorf("%w: %d bytes", errMessageTooLarge, len(body))))
	}
	if err != nil {
		reply.Kind = kindGone
	}
	reply.Body = body
	return reply
}

// failed is an answer that there is no answer.
func failed(err error) *msghandlerv1.AttendAnswer {
	st := statusOf(err)
	return &msghandlerv1.AttendAnswer{Answer: &msghandlerv1.AttendAnswer_Failure{
		Failure: &msghandlerv1.AttendFailure{Code: int32(st.Code()), Message: st.Message()}, //nolint:gosec // codes are small
	}}
}
