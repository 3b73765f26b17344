package doctor_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/app/doctor"
	"github.com/msghandler/msghandler/internal/config"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// closing accepts connections and closes them.
func closing(t *testing.T) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		accepting.Wait()
	})
	return listener.Addr().String()
}

// The producer's answer UNAVAILABLE is right while its database is away. A lost connection is no answer.
func TestDatabaseAwayDemandsAnAnswer(t *testing.T) {
	t.Parallel()
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(untrusted.Close)
	plain := serveURL(t, http.NotFoundHandler())
	address := closing(t)
	e := doctor.Examination{Settings: config.Default(), DatabaseAway: true}
	e.Settings.Callbacks.Allow = []string{"127.0.0.1:*"}
	for _, target := range []string{
		untrusted.URL, untrusted.Listener.Addr().String(), "https" + plain[len("http"):], address, "http://" + address,
	} {
		if found := doctor.Verify(t.Context(), e, "orders", target); !doctor.Unreached(found) {
			t.Errorf("about %s the answer is %+v", target, found)
		}
	}
	away := serveURL(t, answering(http.StatusServiceUnavailable, "text/plain", "no database"))
	if names := complaints(t, doctor.Verify(t.Context(), e, "orders", away)); len(names) > 0 {
		t.Errorf("about a producer that answers 503 the doctor finds %q", names)
	}
}

// cutOff is a producer whose examination ends during the question about a full batch.
type cutOff struct {
	*book
	end context.CancelFunc
}

func (c cutOff) Confirm(ctx context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	if len(r.GetIds()) > 200 {
		c.end()
		<-ctx.Done()
	}
	return c.book.Confirm(ctx, r)
}

// The end of the time says nothing of the producer.
func TestVerifyBlamesNoProducerForTimeout(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	producer := cutOff{&book{stone: map[string]bool{}}, cancel}
	target := serveProducer(t, func(r grpc.ServiceRegistrar) { pb.RegisterProducerServiceServer(r, producer) })
	e := doctor.Examination{Settings: config.Default()}
	e.Settings.Callbacks.Allow = []string{"127.0.0.1:*"}
	found := doctor.Verify(ctx, e, "orders", target)
	if names := complaints(t, found); !slices.Equal(names, []string{"verify-unfinished"}) ||
		found[len(found)-1].Check != "batch" {
		t.Errorf("found %q: %+v", names, found)
	}
}

// failing fails for one id, and records whether the question was final.
type failing struct {
	*book
	finals chan bool
}

func (f failing) Confirm(ctx context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	if slices.Contains(r.GetIds(), "0999") {
		f.finals <- r.GetFinal()
		return nil, status.Error(codes.Internal, "deadlock detected")
	}
	return f.book.Confirm(ctx, r)
}

// A final question about an id of the business would leave a tombstone. Only a producer that has answered COMMITTED
// gets such a question.
func TestVerifyLeavesIdsOfBusinessAlone(t *testing.T) {
	t.Parallel()
	producer := failing{&book{stone: map[string]bool{}}, make(chan bool, 10)}
	target := serveProducer(t, func(r grpc.ServiceRegistrar) { pb.RegisterProducerServiceServer(r, producer) })
	e := doctor.Examination{Settings: config.Default(), Known: doctor.Known{Deleted: []string{"0999"}}}
	e.Settings.Callbacks.Allow = []string{"127.0.0.1:*"}
	names := complaints(t, doctor.Verify(t.Context(), e, "orders", target))
	if !slices.Equal(names, []string{"producer-fails"}) {
		t.Errorf("found %q", names)
	}
	close(producer.finals)
	for final := range producer.finals {
		if final {
			t.Error("the question about an id of the business is final")
		}
	}
}

// The loss of one connection among several does not make the other findings unknown.
func TestLaterChecksAreKnown(t *testing.T) {
	t.Parallel()
	away := doctor.Finding{Name: "producer-away", Severity: doctor.Trouble, Check: "connections"}
	if found := []doctor.Finding{{Check: "final", Name: "producer-wavers"}, away}; doctor.Unreached(found) {
		t.Error("a lost connection in a later check makes all checks unknown")
	}
	away.Check = "reach"
	if !doctor.Unreached([]doctor.Finding{away}) {
		t.Error("a producer that does not answer at all is reached")
	}
}
