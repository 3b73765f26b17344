package attend

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	// defaultTimeout is for a question without a deadline.
	defaultTimeout = 3 * time.Second
	// rounds is how often a question is asked at most: at once, and after each third of its time without an answer. A
	// replica that answers with a failure makes the next be asked at once.
	rounds = 3
	// againAfter is how often another stream is looked for where the last has ended, for a third of the time at most.
	againAfter = 50 * time.Millisecond
	// maxFailureText is how much of a replica's own words is kept.
	maxFailureText = 300
)

// ask is a question on its way to one replica after another.
type ask struct {
	hub      *Hub
	ctx      context.Context
	producer string
	question *msghandlerv1.AttendQuestion
	// fromPost says that another coordinator asks, and looks for other coordinators itself. insist says that this
	// coordinator also wants replicas asked that fail to answer.
	fromPost, insist bool

	// results are the outcomes of streams of this coordinator, with room for all; replies are those of others.
	results, replies chan outcome
	// rounds is how many replicas or coordinators were asked, pending how many of these have not answered yet.
	rounds, pending int
	// used are the streams asked, with the ids of the questions there. late says that one has not answered in time.
	used map[*Stream]uint64
	late bool
	// mailboxes are the coordinators to ask next, failing those that have only replicas which fail to answer. looked says
	// that mailboxes were looked for since the last outcome or third of the time: a replica whose stream breaks opens
	// another.
	mailboxes, failing []string
	looked             bool
	asked              map[string]bool
	// lost says that a stream ended before it answered. lately says that the producer has attended in the last seconds,
	// and patient that the ask still waits for another stream of the producer. again is when to look next;
	// nil while there is no need.
	lost, lately, patient bool
	again                 <-chan time.Time
	// foreign says that a marker store attends that the question is not about, or one without an identity. other is such
	// a store; empty where none is named.
	foreign bool
	other   string
	// failure is the last answer that there is no answer; trouble is why the post could not be used.
	failure, trouble error
}

// askReplica asks replicas until one has answered, or the context ends. The error is a status of gRPC.
func (h *Hub) askReplica(
	ctx context.Context, producer string, question *msghandlerv1.AttendQuestion,
) (*msghandlerv1.AttendAnswer, error) {
	answer, result, err := (&ask{hub: h, producer: producer, question: question}).run(ctx)
	h.config.Asked(result)
	return answer, err
}

// run makes the rounds, and says what came of the question.
func (a *ask) run(ctx context.Context) (answer *msghandlerv1.AttendAnswer, result string, err error) {
	if _, set := ctx.Deadline(); !set {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultTimeout)
		defer cancel()
	}
	var cancel context.CancelFunc
	a.ctx, cancel = context.WithCancel(ctx)
	defer cancel() // later answers are late
	a.used, a.asked = map[*Stream]uint64{}, map[string]bool{}
	a.results, a.replies = make(chan outcome, rounds), make(chan outcome)
	a.patient = !a.fromPost
	next := time.NewTicker(max(a.left()/rounds, time.Millisecond))
	defer next.Stop()
	room := a.more()
	for a.pending > 0 || room != nil || a.again != nil {
		var o *outcome
		select {
		case here := <-a.results:
			o = &here
		case there := <-a.replies:
			o = &there
		case <-room:
		case <-a.again:
			a.looked = false
		case <-next.C:
			a.patient = false
			a.looked = false
			a.suspect()
		case <-ctx.Done():
			return nil, Unanswered, a.none(ctx.Err())
		}
		if o != nil {
			a.pending--
			a.looked = a.looked && o.err == nil
			if answer := a.takeOutcome(*o); answer != nil {
				return answer, Answered, nil
			}
		}
		room = a.more()
	}
	return a.end()
}

// left is the time until the deadline.
func (a *ask) left() time.Duration {
	deadline, _ := a.ctx.Deadline()
	return time.Until(deadline)
}

// end says why no replica is left to ask.
func (a *ask) end() (*msghandlerv1.AttendAnswer, string, error) {
	switch {
	case a.failure != nil:
		return nil, Failed, a.failure
	case a.late:
		return nil, Unanswered, a.overdue(context.DeadlineExceeded)
	case a.foreign:
		return a.fromOther()
	case a.trouble != nil:
		return nil, Nobody, status.Error(codes.Unavailable, a.trouble.Error())
	case a.lost:
		return nil, Unanswered, status.Errorf(codes.Unavailable,
			"the streams of producer %s ended before an answer came", a.producer)
	}
	return nil, Nobody, status.Errorf(codes.Unavailable, "no one attends as producer %s", a.producer)
}

// none is the error for a question whose time is over: a failure says more than the time.
func (a *ask) none(over error) error {
	switch {
	case a.failure != nil:
		return a.failure
	case a.trouble != nil && len(a.used) == 0:
		return status.Error(codes.Unavailable, a.trouble.Error())
	}
	return a.overdue(over)
}

// overdue says who gave no answer in time: a replica, another coordinator, or none because all streams are busy.
func (a *ask) overdue(over error) error {
	code := status.FromContextError(over).Code()
	switch others := slices.Sorted(maps.Keys(a.asked)); {
	case len(a.used) > 0:
		return status.Errorf(code, "%v: producer %s gave no answer over its stream", over, a.producer)
	case len(others) > 0:
		return status.Errorf(code, "%v: no answer came from coordinator %s, which has a stream of producer %s", over,
			strings.Join(others, ", "), a.producer)
	}
	return status.Errorf(code, "%v: producer %s was not asked, as all its streams are busy", over, a.producer)
}

// takeOutcome judges an outcome. The result is nil where the question goes on.
func (a *ask) takeOutcome(o outcome) *msghandlerv1.AttendAnswer {
	switch {
	case o.err == errOnlyFailing: //nolint:errorlint // it is never wrapped
		a.rounds--
		a.failing = append(a.failing, o.mailbox)
	case o.err == errLost: //nolint:errorlint // it is never wrapped
		a.rounds--
		a.lost = true
	case o.err != nil:
		a.late = true
	case !answers(a.question, o.answer):
		a.failure = failureOf(o.answer)
	case !a.speaksFor(o.answer):
		a.rounds--
		a.foreign, a.other = true, cmp.Or(o.answer.GetConfirm().GetMarkerStore(), a.other)
	default:
		return o.answer
	}
	return nil
}

// answers reports whether an answer is of its question's kind.
func answers(question *msghandlerv1.AttendQuestion, answer *msghandlerv1.AttendAnswer) bool {
	switch question.GetQuestion().(type) {
	case *msghandlerv1.AttendQuestion_Confirm:
		return answer.GetConfirm() != nil
	case *msghandlerv1.AttendQuestion_DeleteBusiness:
		return answer.GetDeleteBusiness() != nil
	}
	return false
}

// failureOf is the error of an answer without an answer.
func failureOf(answer *msghandlerv1.AttendAnswer) error {
	failure := answer.GetFailure()
	code := codes.Code(failure.GetCode()) //nolint:gosec // judged below
	switch {
	case failure == nil:
		return status.Error(codes.Internal, "the replica has answered another question")
	case code == codes.OK || code > codes.Unauthenticated:
		code = codes.Unknown
	}
	text := failure.GetMessage()
	// A character that is cut in two would keep the failure from going on by post.
	return status.Error(code, strings.ToValidUTF8(text[:min(len(text), maxFailureText)], ""))
}

// more asks another replica, if one is left and the rounds allow it. The result is closed when a stream may have room;
// nil where none is full.
func (a *ask) more() (room <-chan struct{}) {
	a.again = nil
	if a.rounds >= rounds {
		return nil
	}
	before := a.pending
	room = a.next()
	mayReturn := a.patient && a.failure == nil && (a.lost || a.lately)
	if room == nil && a.pending == before && mayReturn {
		a.again = time.After(againAfter)
	}
	return room
}

// next is more without the wait for a stream that returns.
func (a *ask) next() (room <-chan struct{}) {
	if sent, full := a.here(false); sent {
		return nil
	} else if full != nil {
		room = full
	}
	if !a.fromPost && a.elsewhere() {
		return nil
	}
	if a.fromPost && !a.insist {
		return room
	}
	if sent, full := a.here(true); sent {
		return nil
	} else if full != nil {
		room = full
	}
	for len(a.failing) > 0 {
		mailbox := a.failing[0]
		a.failing = a.failing[1:]
		if a.post(mailbox, true) {
			return nil
		}
	}
	return room
}

// here asks over a stream of this coordinator, one of those that fail to answer or one of the others. full is closed
// when a stream may have room; nil where none is full.
func (a *ask) here(failing bool) (sent bool, full <-chan struct{}) {
	h := a.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rosters[a.producer]
	if r == nil {
		return false, nil
	}
	store := wantedStore(a.question)
	s, isFull := r.takeLocked(a.used, failing, store)
	switch {
	case s != nil:
		a.used[s] = s.askLocked(a.ctx, a.question, a.left(), a.results)
		a.rounds++
		a.pending++
		return true, nil
	case isFull:
		return false, r.changesLocked()
	}
	if other := r.otherStoreLocked(store); other != "" {
		a.foreign, a.other = true, other
	}
	return false, nil
}

// suspect has the streams count as failing that have not answered in a third of the time.
func (a *ask) suspect() {
	a.hub.mu.Lock()
	defer a.hub.mu.Unlock()
	for s, id := range a.used {
		s.suspectLocked(id)
	}
}

// elsewhere asks another coordinator that holds a stream of the producer. A coordinator that has ended costs nothing
// but the call.
func (a *ask) elsewhere() (sent bool) {
	post := a.hub.post.Load()
	if post == nil {
		return false
	}
	if !a.looked {
		a.looked = true
		all, announced, err := (*post).Mailboxes(a.ctx, a.producer)
		if err != nil {
			a.trouble = fmt.Errorf("the coordinators with streams of producer %s are not known: %w", a.producer, err)
			return false
		}
		a.mailboxes = a.others(all)
		a.lately = announced >= 0 && announced < a.hub.config.lately()
	}
	for len(a.mailboxes) > 0 {
		mailbox := a.mailboxes[0]
		a.mailboxes = a.mailboxes[1:]
		if a.post(mailbox, false) {
			return true
		}
	}
	return false
}

// post sends the question to a coordinator, and reports whether it was received.
func (a *ask) post(mailbox string, insist bool) bool {
	a.asked[mailbox] = true
	received, err := a.hub.send(a, mailbox, insist)
	if err != nil {
		a.trouble = fmt.Errorf("the question cannot be sent to coordinator %s: %w", mailbox, err)
	}
	if received {
		a.rounds++
		a.pending++
	}
	return received
}
