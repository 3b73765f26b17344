package faults

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

func earlyUsers(w *world) []user {
	return []user{&early{newPlain(w, "early")}, &earlySDK{newService(w, "early-sdk", memory.New())}}
}

// early submits before its SendHalfMessage. The refusal tells early to send; every other business is then silent.
type early struct{ *plain }

func (e *early) act(ctx context.Context, id string, random *rand.Rand) {
	d, at := e.draw(id, random), random.IntN(len(e.coordinators))
	for i := range e.coordinators {
		e.want(d, "Submit before SendHalfMessage", e.submit(ctx, at+i, d, pb.Wait_WAIT_UNSPECIFIED), codes.NotFound)
	}
	if e.begin(ctx, at, d, Committed) && d.way%2 == 0 {
		e.want(d, "Submit", e.submit(ctx, at+1, d, pb.Wait_WAIT_UNSPECIFIED), codes.OK)
	}
}

// earlySDK has a part that submits and another part that sends the half message later: soon enough for a retry of the
// Submit, or after the SDK has given the Submit up.
type earlySDK struct{ *service }

func (e *earlySDK) act(ctx context.Context, id string, random *rand.Rand) {
	d := e.draw(id, random)
	e.sending(d)
	e.ledger.Decide(d.key, Committed)
	submitted := make(chan error, 1)
	go func() {
		_, err := e.sdk.Submit(ctx, id)
		submitted <- err
	}()
	var err error
	if soon := d.way < 70; soon {
		wait(d.slow / 20)
		e.send(ctx, d)
		err = <-submitted
		e.expect(d.key, err, nil)
	} else {
		err = <-submitted
		e.expect(d.key, err, producer.ErrNotFound)
		e.send(ctx, d)
	}
}

func (e *earlySDK) send(ctx context.Context, d deed) {
	_, err := e.sdk.SendHalf(ctx, e.message(d))
	e.expect(d.key, err, nil)
	e.ledger.Accepted(d.key)
}

func racingUsers(w *world) []user { return []user{&racer{plain: newPlain(w, "racer")}} }

// racer submits and rolls back in every order, at every pair of coordinators.
type racer struct {
	*plain
	turn atomic.Int64
	// submitFirst and rollbackFirst count which call of a race came first.
	submitFirst, rollbackFirst atomic.Int64
}

func (r *racer) act(ctx context.Context, id string, random *rand.Rand) {
	turn := int(r.turn.Add(1))
	orders := []func(ctx context.Context, at, to int, d deed){
		r.race, r.submitAfterRollback, r.rollbackAfter(pb.Wait_WAIT_SENDABLE), r.rollbackAfter(pb.Wait_WAIT_DONE),
		r.raceAfterCommit, r.compete,
	}
	pair, n := turn/len(orders), len(r.coordinators)
	orders[turn%len(orders)](ctx, pair%n, pair/n%n, r.draw(id, random))
}

// race: the business has rolled back; one part knows of the rollback, another submits.
func (r *racer) race(ctx context.Context, at, to int, d deed) {
	if !r.begin(ctx, at, d, RolledBack) {
		return
	}
	got := together(
		func() codes.Code { return r.submit(ctx, at, d, pb.Wait_WAIT_UNSPECIFIED) },
		func() codes.Code { return r.rollback(ctx, to, d) },
	)
	r.want(d, "Rollback", got[1], codes.OK)
	r.raced(d, got[0])
}

func (r *racer) raced(d deed, submitted codes.Code) {
	r.want(d, "Submit beside a Rollback", submitted, codes.OK, codes.FailedPrecondition)
	if submitted == codes.OK {
		r.submitFirst.Add(1)
	} else {
		r.rollbackFirst.Add(1)
	}
}

func (r *racer) submitAfterRollback(ctx context.Context, at, to int, d deed) {
	if !r.begin(ctx, at, d, RolledBack) {
		return
	}
	r.want(d, "Rollback", r.rollback(ctx, to, d), codes.OK)
	for i := range r.coordinators {
		r.want(d, "Submit after Rollback", r.submit(ctx, i, d, pb.Wait_WAIT_UNSPECIFIED), codes.FailedPrecondition)
	}
	r.want(d, "the second Rollback", r.rollback(ctx, at, d), codes.OK)
}

// rollbackAfter rolls back a business that is known to be committed.
func (r *racer) rollbackAfter(wait pb.Wait) func(ctx context.Context, at, to int, d deed) {
	return func(ctx context.Context, at, to int, d deed) {
		if !r.begin(ctx, at, d, Committed) {
			return
		}
		r.want(d, "Submit", r.submit(ctx, to, d, wait), codes.OK)
		for i := range r.coordinators {
			r.want(d, "Rollback after the commit", r.rollback(ctx, i, d), codes.FailedPrecondition)
		}
	}
}

// raceAfterCommit: the commit is stored, and all coordinators get both calls at once.
func (r *racer) raceAfterCommit(ctx context.Context, at, to int, d deed) {
	if !r.begin(ctx, at, d, Committed) {
		return
	}
	r.want(d, "Submit", r.submit(ctx, to, d, pb.Wait_WAIT_SENDABLE), codes.OK)
	var calls []func() codes.Code
	for i := range r.coordinators {
		calls = append(calls,
			func() codes.Code { return r.submit(ctx, i, d, pb.Wait_WAIT_UNSPECIFIED) },
			func() codes.Code { return r.rollback(ctx, i, d) })
	}
	for i, code := range together(calls...) {
		r.want(d, "Submit or Rollback after the commit", code, []codes.Code{codes.OK, codes.FailedPrecondition}[i%2])
	}
}

// compete: two parts end the transaction, each in its own way, and the database lets one of them win. The committing
// part submits whether it has won or not.
func (r *racer) compete(ctx context.Context, at, to int, d deed) {
	r.want(d, "SendHalfMessage", r.sendHalf(ctx, at, d), codes.OK)
	r.ledger.Accepted(d.key)
	got := together(
		func() codes.Code {
			wait(d.slow / 1000)
			r.ledger.Decide(d.key, Committed)
			return r.submit(ctx, at, d, pb.Wait_WAIT_UNSPECIFIED)
		},
		func() codes.Code {
			wait(time.Duration(d.way) * d.slow / 50_000)
			if r.ledger.Decide(d.key, RolledBack) == RolledBack {
				return r.rollback(ctx, to, d)
			}
			return codes.OK
		},
	)
	r.want(d, "Rollback", got[1], codes.OK)
	if r.ledger.Fate(d.key) == RolledBack {
		r.raced(d, got[0])
	} else {
		r.want(d, "Submit", got[0], codes.OK)
	}
}

func bothRacesWereWon(t *testing.T, w *world, l *load, end End) {
	t.Helper()
	countedAsAnswered(t, w, l, end)
	r := userOf[*racer](t, l)
	submit, rollback := r.submitFirst.Load(), r.rollbackFirst.Load()
	t.Logf("of the races Submit came first in %d, Rollback in %d", submit, rollback)
	if submit == 0 || rollback == 0 {
		t.Error("a single side has won all races: there was no race")
	}
}

func stormingUsers(w *world) []user { return []user{&stormer{newPlain(w, "stormer")}} }

// stormer has many clients. All send different messages under one id at once, each several times, at all
// coordinators.
type stormer struct{ *plain }

// clients is how many of them there are; each id has three contents among them.
const clients = 9

func (s *stormer) act(ctx context.Context, id string, random *rand.Rand) {
	d := s.draw(id, random)
	contents := s.contents(d)
	var calls []func() codes.Code
	for i := range clients {
		calls = append(calls, func() codes.Code { return s.send(ctx, i/len(contents), contents[i%len(contents)]) })
	}
	got := together(calls...)
	first := slices.Index(got, codes.OK)
	if first < 0 {
		s.surprised("%s: none of its messages was taken: %v", d.key, got)
		return
	}
	first %= len(contents)
	s.wantOnly(d, first, got)
	m := contents[first]
	s.ledger.Sending(d.key, NewContent(m.GetExchange(), m.GetRoutingKey(), m.GetHeaders(), m.GetBody()))
	if !s.end(d, Committed) {
		return
	}
	s.wantOnly(d, first, together(calls...))
	for _, code := range together(s.submits(ctx, d)...) {
		s.want(d, "Submit", code, codes.OK)
	}
	s.wantOnly(d, first, together(calls...))
}

// contents differ in the body, in the routing key, and in the headers.
func (s *stormer) contents(d deed) []*pb.Message {
	message := func(key string, body []byte, headers map[string]string) *pb.Message {
		return &pb.Message{Id: d.id, Exchange: exchange, RoutingKey: key, Body: body, Headers: headers}
	}
	return []*pb.Message{
		message(s.name, d.body, d.headers),
		message(s.name+".other", d.body, d.headers),
		message(s.name, []byte("another"), map[string]string{"version": "2"}),
	}
}

// wantOnly demands that one content was taken from each of its clients, and no other content from any client.
func (s *stormer) wantOnly(d deed, content int, got []codes.Code) {
	for i, code := range got {
		want := codes.AlreadyExists
		if i%3 == content {
			want = codes.OK
		}
		s.want(d, "SendHalfMessage", code, want)
	}
}

func (s *stormer) submits(ctx context.Context, d deed) (calls []func() codes.Code) {
	for i := range clients {
		calls = append(calls, func() codes.Code { return s.submit(ctx, i, d, pb.Wait_WAIT_UNSPECIFIED) })
	}
	return calls
}
