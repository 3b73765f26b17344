package attend_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/attend"
	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }

// hub is the hub of a coordinator, with a note of what came of its questions.
type hub struct {
	*attend.Hub
	name string

	mu       sync.Mutex
	outcomes []string
}

func newHub(t *testing.T, name string) *hub {
	t.Helper()
	h := &hub{name: name}
	h.Hub = attend.New(attend.Config{
		Instance: name, Streams: 100, PerProducer: 50, Logger: slog.New(slog.DiscardHandler),
		Asked: func(outcome string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.outcomes = append(h.outcomes, outcome)
		},
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	return h
}

// connected are hubs on one Redis.
func connected(t *testing.T, url string, names ...string) (hubs []*hub) {
	t.Helper()
	for _, name := range names {
		store, err := redisstore.New(t.Context(), redisstore.Config{
			URL: url, Prefix: "test", Instance: name, Retention: time.Minute, Logger: slog.New(slog.DiscardHandler),
		})
		must.Succeed(t, err)
		t.Cleanup(func() { _ = store.Close() })
		h := newHub(t, name)
		h.Connect(store)
		servers.Eventually(t, 20*time.Second, name+" gets peer messages", func() bool {
			received, _ := store.Send(t.Context(), name, []byte("{}"))
			return received
		})
		hubs = append(hubs, h)
	}
	return hubs
}

func (h *hub) count(outcome string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.outcomes {
		if o == outcome {
			n++
		}
	}
	return n
}

// replica is a stream whose client answers as a test says. A nil answer is none.
type replica struct {
	*attend.Stream
	mu    sync.Mutex
	asked []*pb.AttendQuestion
}

func (h *hub) replica(
	t *testing.T, answer func(q *pb.AttendQuestion) *pb.AttendAnswer, store ...string,
) *replica {
	t.Helper()
	s, err := h.Join(t.Context(), attend.Hello{Producer: "orders", Parallel: 2, MarkerStore: strings.Join(store, "")})
	must.Succeed(t, err)
	r := &replica{Stream: s}
	ended := make(chan struct{})
	var answering sync.WaitGroup
	answering.Go(func() {
		for {
			select {
			case m := <-s.Out():
				if q := m.GetQuestion(); q != nil {
					r.mu.Lock()
					r.asked = append(r.asked, q)
					r.mu.Unlock()
					if a := answer(q); a != nil {
						a.Id = q.GetId()
						s.Answer(a)
					}
				}
			case <-ended:
				return
			}
		}
	})
	t.Cleanup(func() {
		s.End()
		close(ended)
		answering.Wait()
	})
	return r
}

func (r *replica) questions() []*pb.AttendQuestion {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

func committed(q *pb.AttendQuestion) *pb.AttendAnswer {
	answer := &pb.ConfirmResponse{}
	for _, id := range q.GetConfirm().GetIds() {
		answer.Confirmations = append(answer.Confirmations,
			&pb.Confirmation{Id: id, Verdict: pb.Verdict_VERDICT_COMMITTED})
	}
	return &pb.AttendAnswer{Answer: &pb.AttendAnswer_Confirm{Confirm: answer}}
}

func silent(*pb.AttendQuestion) *pb.AttendAnswer { return nil }

func failing(code codes.Code) func(*pb.AttendQuestion) *pb.AttendAnswer {
	return func(*pb.AttendQuestion) *pb.AttendAnswer {
		return &pb.AttendAnswer{Answer: &pb.AttendAnswer_Failure{
			Failure: &pb.AttendFailure{Code: int32(code), Message: "broken"},
		}}
	}
}

// confirm asks, for as long as within.
func (h *hub) confirm(t *testing.T, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	r, err := h.Client("orders").Confirm(ctx, &pb.ConfirmRequest{Producer: "orders", Ids: []string{"1"}})
	if err == nil && len(r.GetConfirmations()) != 1 {
		return fmt.Errorf("%d confirmations", len(r.GetConfirmations()))
	}
	return err
}

// patient is longer than any test waits, and so are its thirds.
const patient = 30 * time.Second

func TestReplicasAreAskedInTurn(t *testing.T) {
	t.Parallel()
	h := newHub(t, "one")
	a, b := h.replica(t, committed), h.replica(t, committed)
	for range 10 {
		must.Succeed(t, h.confirm(t, patient))
	}
	if len(a.questions()) != 5 || len(b.questions()) != 5 {
		t.Errorf("%d and %d questions", len(a.questions()), len(b.questions()))
	}
}

func TestNobodyAttendsIsUnavailableAtOnce(t *testing.T) {
	t.Parallel()
	h := newHub(t, "one")
	if err := h.confirm(t, patient); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
	if h.count(attend.Nobody) != 1 {
		t.Errorf("counted %v", h.outcomes)
	}
}

// A replica that takes questions and never answers loses them to another, and is asked last from then on.
func TestASilentReplicaIsAskedLast(t *testing.T) {
	t.Parallel()
	h := newHub(t, "one")
	dead, alive := h.replica(t, silent), h.replica(t, committed)
	for range 2 {
		must.Succeed(t, h.confirm(t, time.Second))
	}
	servers.Eventually(t, 10*time.Second, "the question is given up", func() bool { return h.Open() == 0 })
	before := len(dead.questions())
	for range 10 {
		must.Succeed(t, h.confirm(t, patient))
	}
	if before != 1 || len(dead.questions()) != 1 {
		t.Errorf("the silent replica got %d questions, and then %d", before, len(dead.questions()))
	}
	alive.End()
	if err := h.confirm(t, 300*time.Millisecond); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
	if len(dead.questions()) != 2 {
		t.Error("the silent replica was the last, and was not asked")
	}
}

func TestLateAnswersAreDropped(t *testing.T) {
	t.Parallel()
	h := newHub(t, "one")
	dead := h.replica(t, silent)
	if err := h.confirm(t, 50*time.Millisecond); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
	servers.Eventually(t, 10*time.Second, "the question is given up", func() bool { return h.Open() == 0 })
	late := committed(dead.questions()[0])
	late.Id = dead.questions()[0].GetId()
	dead.Answer(late)
	if h.count(attend.Late) != 1 || h.count(attend.Unanswered) != 1 {
		t.Errorf("counted %v", h.outcomes)
	}
}

// Whose time-out it was decides who has to act.
func TestTimeoutsSayWhoIsLate(t *testing.T) {
	t.Parallel()
	h := newHub(t, "one")
	h.replica(t, silent)
	if err := h.confirm(t, 50*time.Millisecond); !strings.Contains(fmt.Sprint(err), "gave no answer over its stream") {
		t.Errorf("a replica is silent: %v", err)
	}
	servers.Eventually(t, 10*time.Second, "the question is given up", func() bool { return h.Open() == 0 })
	var asking sync.WaitGroup
	defer asking.Wait()
	for range 2 { // as many as the stream takes at once
		asking.Go(func() { _ = h.confirm(t, 3*time.Second) })
	}
	servers.Eventually(t, 10*time.Second, "the stream is full", func() bool { return h.Open() == 2 })
	if err := h.confirm(t, 50*time.Millisecond); !strings.Contains(fmt.Sprint(err), "all its streams are busy") {
		t.Errorf("no stream has room: %v", err)
	}
}

func TestFailureIsAskedElsewhereAtOnce(t *testing.T) {
	t.Parallel()
	h := newHub(t, "one")
	h.replica(t, failing(codes.Unavailable))
	h.replica(t, committed)
	for range 4 {
		if err := h.confirm(t, patient); err != nil {
			t.Error(err)
		}
	}
	other := newHub(t, "two")
	for range 5 {
		other.replica(t, failing(codes.Internal))
	}
	if err := other.confirm(t, patient); status.Code(err) != codes.Internal || status.Convert(err).Message() != "broken" {
		t.Errorf("got %v", err)
	}
}

func TestEndedStreamsQuestionMovesOn(t *testing.T) {
	t.Parallel()
	h := newHub(t, "one")
	var ended *replica
	ended = h.replica(t, func(*pb.AttendQuestion) *pb.AttendAnswer {
		ended.End()
		return nil
	})
	h.replica(t, committed)
	for range 2 {
		if err := h.confirm(t, patient); err != nil {
			t.Error(err)
		}
	}
}

// A replica whose only stream is cut opens another, here or elsewhere, and the question waits for it.
func TestQuestionWaitsForStreamThatReturns(t *testing.T) {
	t.Parallel()
	hubs := connected(t, servers.Redis(t).URL(), "one", "two")
	cut := make(chan struct{})
	var ended *replica
	ended = hubs[0].replica(t, func(*pb.AttendQuestion) *pb.AttendAnswer {
		ended.End()
		close(cut)
		return nil
	})
	asked := make(chan error, 1)
	go func() { asked <- hubs[0].confirm(t, patient) }()
	<-cut
	hubs[1].replica(t, committed)
	if err := <-asked; err != nil {
		t.Error(err)
	}
}

func TestAFullStreamIsWaitedFor(t *testing.T) {
	t.Parallel()
	h := newHub(t, "one")
	r := h.replica(t, silent)
	var asking sync.WaitGroup
	for range 3 { // it takes two at once
		asking.Go(func() {
			if err := h.confirm(t, patient); err != nil {
				t.Error(err)
			}
		})
	}
	servers.Eventually(t, 10*time.Second, "two questions are open", func() bool { return len(r.questions()) == 2 })
	for i := range 3 {
		servers.Eventually(t, 10*time.Second, "the next question comes", func() bool { return len(r.questions()) > i })
		answer := committed(r.questions()[i])
		answer.Id = r.questions()[i].GetId()
		r.Answer(answer)
	}
	asking.Wait()
}

func TestQuestionGoesToHolderOfStream(t *testing.T) {
	t.Parallel()
	hubs := connected(t, servers.Redis(t).URL(), "one", "two", "three")
	one, two, three := hubs[0], hubs[1], hubs[2]
	if attended, err := three.Attended(t.Context(), "orders"); attended || err != nil {
		t.Fatalf("nobody attends yet: %t, %v", attended, err)
	}
	r := one.replica(t, committed)
	servers.Eventually(t, 10*time.Second, "the others know", func() bool {
		attended, err := three.Attended(t.Context(), "orders")
		return attended && err == nil
	})
	for _, h := range []*hub{one, two, three} {
		if err := h.confirm(t, patient); err != nil {
			t.Errorf("%s: %v", h.name, err)
		}
	}
	if n := len(r.questions()); n != 3 {
		t.Errorf("%d questions", n)
	}
	r.End()
	servers.Eventually(t, 10*time.Second, "nobody attends any more", func() bool {
		return status.Code(two.confirm(t, 100*time.Millisecond)) == codes.Unavailable
	})
	if attended, err := two.Attended(t.Context(), "orders"); !attended || err != nil {
		t.Errorf("the producer is forgotten: %t, %v", attended, err)
	}
}

// The answers of the holder's replicas decide: a failure comes back as it is.
func TestAFailureComesBackByPost(t *testing.T) {
	t.Parallel()
	hubs := connected(t, servers.Redis(t).URL(), "one", "two")
	hubs[0].replica(t, failing(codes.DataLoss))
	for _, h := range hubs {
		// No third of the time is waited for: the replica has answered.
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		_, err := h.Client("orders").Confirm(ctx, &pb.ConfirmRequest{Producer: "orders", Ids: []string{"1"}})
		cancel()
		if status.Code(err) != codes.DataLoss {
			t.Errorf("%s: got %v", h.name, err)
		}
	}
}

// A coordinator with the name of another receives its peer messages too, and must not take its answers.
func TestAnswerSettlesNoQuestionOfNamesake(t *testing.T) {
	t.Parallel()
	hubs := connected(t, servers.Redis(t).URL(), "one", "one", "two")
	r := hubs[2].replica(t, func(q *pb.AttendQuestion) *pb.AttendAnswer {
		if q.GetConfirm().GetIds()[0] == "unanswered" {
			return nil
		}
		return committed(q)
	})
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	asked := make(chan *pb.ConfirmResponse, 1)
	go func() {
		answer, _ := hubs[1].Client("orders").Confirm(ctx, &pb.ConfirmRequest{Ids: []string{"unanswered"}})
		asked <- answer
	}()
	servers.Eventually(t, 10*time.Second, "the question is open", func() bool { return len(r.questions()) == 1 })
	if err := hubs[0].confirm(t, patient); err != nil {
		t.Error(err)
	}
	servers.Eventually(t, 10*time.Second, "the namesake has the answer too", func() bool {
		return hubs[1].count(attend.Late) == 1 || len(asked) == 1
	})
	cancel()
	if answer := <-asked; answer != nil {
		t.Errorf("the namesake took the answer %v", answer)
	}
}

// A text that is cut within a character still comes back by post.
func TestLongFailureComesBackByPost(t *testing.T) {
	t.Parallel()
	hubs := connected(t, servers.Redis(t).URL(), "one", "two")
	hubs[0].replica(t, func(*pb.AttendQuestion) *pb.AttendAnswer {
		return &pb.AttendAnswer{Answer: &pb.AttendAnswer_Failure{
			Failure: &pb.AttendFailure{Code: int32(codes.DataLoss), Message: "x" + strings.Repeat("é", 200)},
		}}
	})
	if err := hubs[1].confirm(t, patient); status.Code(err) != codes.DataLoss {
		t.Errorf("got %v", err)
	}
}

// A holder that was killed still stands in Redis; no coordinator receives its peer messages.
func TestAKilledHolderCostsNoTime(t *testing.T) {
	t.Parallel()
	url := servers.Redis(t).URL()
	hubs := connected(t, url, "one", "two")
	store, err := redisstore.New(t.Context(), redisstore.Config{URL: url, Prefix: "test", Retention: time.Minute})
	must.Succeed(t, err)
	defer func() { _ = store.Close() }()
	for i := range 5 {
		must.Succeed(t, store.Announce(t.Context(), fmt.Sprint("killed", i), []string{"orders"}, time.Minute))
	}
	if err := hubs[1].confirm(t, time.Second); status.Code(err) != codes.Unavailable {
		t.Errorf("without a stream: %v", err)
	}
	hubs[0].replica(t, committed)
	for range 5 {
		if err := hubs[1].confirm(t, patient); err != nil {
			t.Error(err)
		}
	}
}

// Holders whose replicas fail to answer say so, and others are asked first.
func TestSilentReplicasHolderIsAskedLast(t *testing.T) {
	t.Parallel()
	hubs := connected(t, servers.Redis(t).URL(), "one", "two", "three")
	dead := hubs[0].replica(t, silent)
	if err := hubs[0].confirm(t, 100*time.Millisecond); err == nil {
		t.Fatal("a silent replica answers")
	}
	servers.Eventually(t, 10*time.Second, "the question is given up", func() bool { return hubs[0].Open() == 0 })
	hubs[1].replica(t, committed)
	for range 10 {
		if err := hubs[2].confirm(t, patient); err != nil {
			t.Error(err)
		}
	}
	if n := len(dead.questions()); n != 1 {
		t.Errorf("the silent replica got %d questions", n)
	}
}

func TestJoiningNeedsTheStore(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	h := connected(t, server.URL(), "one")[0]
	server.Kill()
	_, err := h.Join(t.Context(), attend.Hello{Producer: "orders", Parallel: 2})
	if !errors.Is(err, halfmsg.ErrUnavailable) && !errors.Is(err, halfmsg.ErrUncertain) || h.Streams() != 0 {
		t.Errorf("got %v, with %d streams", err, h.Streams())
	}
	if _, err := h.Attended(t.Context(), "orders"); err == nil {
		t.Error("who attends is known without Redis")
	}
}

// After a restart Redis knows nothing. The holders subscribe and announce again.
func TestHoldersReturnWithRedis(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	hubs := connected(t, server.URL(), "one", "two")
	hubs[0].replica(t, committed)
	must.Succeed(t, hubs[1].confirm(t, patient))
	server.Kill()
	if err := hubs[1].confirm(t, patient); status.Code(err) != codes.Unavailable {
		t.Errorf("without Redis: %v", err)
	}
	server.Start()
	servers.Eventually(t, time.Minute, "questions are answered again", func() bool {
		return hubs[1].confirm(t, time.Second) == nil
	})
}
