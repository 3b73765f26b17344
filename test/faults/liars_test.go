package faults

import (
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// liar is a producer whose business is honest and whose answers are lies. The liar notes its honest answers itself.
type liar struct {
	*plain
	lie lie

	calls atomic.Int64
	mu    sync.Mutex
	asked map[string]int
}

// lie spoils an honest answer, or replaces the answer. calls is the number of this call, asked how often each of its
// ids has been in a call.
type lie func(l *liar, calls int, asked map[string]int, honest *pb.ConfirmResponse) (*pb.ConfirmResponse, error)

// lies are the false answers to the coordinators, by the name of the liar. A liar that ends does so before the last
// Confirm call.
var lies = map[string]lie{
	"unset":         instead(pb.Verdict_VERDICT_UNSPECIFIED),
	"out-of-range":  instead(77),
	"negative":      instead(-1),
	"leaves-out":    leaveOut,
	"invents":       invent,
	"repeats":       repeat,
	"not-found":     fail(codes.NotFound),
	"unimplemented": fail(codes.Unimplemented),
	"internal":      fail(codes.Internal),
	"too-large":     inflate,
	"too-late":      tooLate(1500 * time.Millisecond),
	"after-lease":   tooLate(7 * time.Second),
}

func lyingUsers(w *world) []user {
	users := []user{newFlapper(w)}
	for _, name := range slices.Sorted(maps.Keys(lies)) {
		l := &liar{plain: connectPlain(w, name), lie: lies[name], asked: map[string]int{}}
		l.answerWith(w, l)
		users = append(users, l)
	}
	return users
}

// Confirm implements the service of a producer.
func (l *liar) Confirm(ctx context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	honest, err := l.plain.Confirm(ctx, r)
	if err != nil {
		return nil, err
	}
	// The known fate may come through the lies, so the fate counts as said.
	for _, c := range honest.GetConfirmations() {
		if fate := l.ledger.Fate(l.key(c.GetId())); fate != Undecided {
			l.ledger.Said(l.key(c.GetId()), fate)
		}
	}
	return l.lie(l, int(l.calls.Add(1)), l.count(r.GetIds()), honest)
}

func (l *liar) count(ids []string) map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	times := map[string]int{}
	for _, id := range ids {
		l.asked[id]++
		times[id] = l.asked[id]
	}
	return times
}

// most is the highest number of calls for one id.
func (l *liar) most() (most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.asked {
		most = max(most, n)
	}
	return most
}

// fibs is how often a liar lies about an id: the coordinators of a row ask four times before the last Confirm call.
const fibs = 2

// instead gives an invalid verdict.
func instead(verdict pb.Verdict) lie {
	return func(_ *liar, _ int, asked map[string]int, answer *pb.ConfirmResponse) (*pb.ConfirmResponse, error) {
		for _, c := range answer.GetConfirmations() {
			if asked[c.GetId()] <= fibs {
				c.Verdict = verdict
			}
		}
		return answer, nil
	}
}

func leaveOut(_ *liar, _ int, asked map[string]int, answer *pb.ConfirmResponse) (*pb.ConfirmResponse, error) {
	answer.Confirmations = slices.DeleteFunc(answer.Confirmations, func(c *pb.Confirmation) bool {
		return asked[c.GetId()] <= fibs
	})
	return answer, nil
}

// invent says that each business known to the liar has committed: ids outside the call, its own and others'.
func invent(l *liar, _ int, asked map[string]int, answer *pb.ConfirmResponse) (*pb.ConfirmResponse, error) {
	ids := append(l.ledger.IDs("plain"), "never-sent", "plain/000001", "")
	for _, id := range append(ids, l.ledger.IDs(l.name)...) {
		if asked[id] == 0 {
			answer.Confirmations = append(answer.Confirmations,
				&pb.Confirmation{Id: id, Verdict: pb.Verdict_VERDICT_COMMITTED})
		}
	}
	return answer, nil
}

// repeat says everything twice, and the first times the opposite as well.
func repeat(_ *liar, _ int, asked map[string]int, answer *pb.ConfirmResponse) (*pb.ConfirmResponse, error) {
	for _, c := range slices.Clone(answer.GetConfirmations()) {
		again := &pb.Confirmation{Id: c.GetId(), Verdict: c.GetVerdict()}
		if asked[c.GetId()] <= fibs {
			again.Verdict = opposite(c.GetVerdict())
		}
		answer.Confirmations = append(answer.Confirmations, again)
	}
	return answer, nil
}

func opposite(verdict pb.Verdict) pb.Verdict {
	if verdict == pb.Verdict_VERDICT_COMMITTED {
		return pb.Verdict_VERDICT_ROLLED_BACK
	}
	return pb.Verdict_VERDICT_COMMITTED
}

// fail fails every other call.
func fail(code codes.Code) lie {
	return func(_ *liar, calls int, _ map[string]int, answer *pb.ConfirmResponse) (*pb.ConfirmResponse, error) {
		if calls%2 == 1 {
			return nil, status.Error(code, "a lie")
		}
		return answer, nil
	}
}

// inflate makes every other answer larger than anybody asked for.
func inflate(_ *liar, calls int, _ map[string]int, answer *pb.ConfirmResponse) (*pb.ConfirmResponse, error) {
	if calls%2 == 1 {
		large := strings.Repeat("x", 2<<20)
		answer.Confirmations = append(answer.Confirmations, &pb.Confirmation{Id: large})
	}
	return answer, nil
}

// tooLate gives every other answer after the caller's timeout, and then the wrong answer.
func tooLate(after time.Duration) lie {
	return func(_ *liar, calls int, _ map[string]int, answer *pb.ConfirmResponse) (*pb.ConfirmResponse, error) {
		if calls%2 == 0 {
			return answer, nil
		}
		wait(after)
		for _, c := range answer.GetConfirmations() {
			c.Verdict = opposite(c.GetVerdict())
		}
		return answer, nil
	}
}

// flapper rolls back, and answers COMMITTED while the rollback is being stored. The first word counts.
type flapper struct {
	*plain
	flapped atomic.Int64
	// openConfirms holds each Confirm call until the Rollback that contradicts its answer.
	openConfirms sync.Map // of *openConfirm by id
}

type openConfirm struct {
	once          sync.Once
	asked, answer chan struct{}
}

func newFlapper(w *world) *flapper {
	f := &flapper{plain: connectPlain(w, "flapper")}
	f.answerWith(w, f)
	return f
}

func (f *flapper) act(ctx context.Context, id string, random *rand.Rand) {
	d, at := f.draw(id, random), random.IntN(len(f.coordinators))
	q := &openConfirm{asked: make(chan struct{}), answer: make(chan struct{})}
	f.openConfirms.Store(id, q)
	defer f.openConfirms.Delete(id)
	if !f.begin(ctx, at, d, RolledBack) {
		return
	}
	f.want(d, "Submit", f.submit(ctx, at+1, d, pb.Wait_WAIT_UNSPECIFIED), codes.OK)
	select {
	case <-q.asked:
	case <-time.After(patience):
		f.surprised("%s: no coordinator asks", d.key)
	}
	f.want(d, "Rollback", f.rollback(ctx, at+2, d), codes.OK)
	close(q.answer)
	f.flapped.Add(1)
}

// Confirm answers COMMITTED for everything, once the Rollback is stored.
func (f *flapper) Confirm(_ context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	answer := &pb.ConfirmResponse{}
	for _, id := range r.GetIds() {
		answer.Confirmations = append(answer.Confirmations,
			&pb.Confirmation{Id: id, Verdict: pb.Verdict_VERDICT_COMMITTED})
		if open, ok := f.openConfirms.Load(id); ok {
			q := open.(*openConfirm)
			q.once.Do(func() { close(q.asked) })
			<-q.answer
		}
	}
	return answer, nil
}

// liesWereHeard demands that the coordinators noticed each kind of lie.
func liesWereHeard(t *testing.T, w *world, l *load, _ End) {
	t.Helper()
	for _, metric := range []string{
		`msghandler_confirms_total{result="unreachable"}`, `msghandler_moves_total{event="unknown",fate="stored"}`,
	} {
		n := w.counted(metric)
		t.Logf("%s %d", metric, n)
		if n == 0 {
			t.Errorf("%s is 0: no lie was noticed", metric)
		}
	}
	flapped := int(userOf[*flapper](t, l).flapped.Load())
	contradictions := w.counted(`msghandler_moves_total{event="committed",fate="contradiction"}`)
	t.Logf("%d contradictions were counted, %d made", contradictions, flapped)
	// An answer after the coordinator's timeout was not received, and contradicts nothing.
	if contradictions > flapped || contradictions < flapped/2 || contradictions == 0 {
		t.Errorf("%d contradictions were counted, and %d made", contradictions, flapped)
	}
	var logs strings.Builder
	for _, c := range w.coordinators {
		text, err := os.ReadFile(c.log)
		if err != nil {
			t.Fatal(err)
		}
		logs.Write(text)
	}
	for _, u := range l.users {
		// An omitted id is no oddity: the coordinator asks again.
		if liar, is := u.(*liar); is && !strings.Contains(logs.String(), "producer="+liar.name) && liar.most() <= fibs {
			t.Errorf("no coordinator says anything of %s, nor asks the producer again", liar.name)
		}
	}
}
