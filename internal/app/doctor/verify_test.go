package doctor_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	_ "modernc.org/sqlite" // the driver of the markers' database

	"github.com/msghandler/msghandler/internal/app/doctor"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/memory"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// verify examines a producer with the default configuration.
func verify(t *testing.T, target string, committed ...string) []doctor.Finding {
	t.Helper()
	c := config.Default()
	c.Callbacks.Allow = []string{"127.0.0.1:*"}
	return doctor.Verify(t.Context(), doctor.Examination{Settings: c}, "orders", target, committed...)
}

// serveSDK serves a producer of the SDK with a committed message, 1001.
func serveSDK(t *testing.T, markers marker.Store) string {
	t.Helper()
	return serveProducer(t, newSDK(t, markers).Register)
}

// newSDK is a producer of the SDK with a committed message, 1001.
func newSDK(t *testing.T, markers marker.Store) *producer.Producer {
	t.Helper()
	p, err := producer.New(producer.Config{
		Name: "orders", Coordinator: "127.0.0.1:1", Markers: markers,
		Coordinators: producer.Coordinators{Anyone: true},
	})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	if _, err := markers.Put(t.Context(), []string{"1001"}, marker.Committed); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProducerWithSDKKeepsContract(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "orders.db")+"?_pragma=busy_timeout(5000)")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = db.Close() })
	markers, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: sqlmarker.SQLite, Producer: "orders"})
	must.Succeed(t, err)
	must.Succeed(t, markers.Migrate(t.Context()))
	found := verify(t, serveSDK(t, markers), "1001")
	if names := complaints(t, found); len(names) > 0 || len(found) != 11 {
		t.Errorf("about a good producer verify says %+v", found)
	}
	found = verify(t, serveURL(t, newSDK(t, markers).HTTPHandler()), "1001")
	if names := complaints(t, found); len(names) > 0 || len(found) != 11 {
		t.Errorf("about a good producer by HTTP verify says %+v", found)
	}
	// Markers in memory cannot decide, as the page says, so this is the only finding.
	names := complaints(t, verify(t, serveSDK(t, memory.New()), "1001"))
	if !slices.Equal(names, []string{"producer-undecided"}) {
		t.Errorf("about a producer with markers in memory verify finds %q", names)
	}
}

// book is a hand-written producer that decides. Each breach of the contract changes a single answer.
type book struct {
	pb.UnimplementedProducerServiceServer
	breach string

	mu    sync.Mutex
	stone map[string]bool
}

func (b *book) Confirm(_ context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.GetProducer() == "msghandler-doctor" {
		return nil, status.Error(codes.FailedPrecondition, "this is another producer")
	}
	switch {
	case b.breach == "fails a full batch" && len(r.GetIds()) > 200:
		return nil, status.Error(codes.Internal, "too many")
	case b.breach == "fails on nothing" && len(r.GetIds()) == 0:
		return nil, status.Error(codes.Unknown, "index out of range")
	case b.breach == "refuses long ids" && len(r.GetIds()) == 1 && len(r.GetIds()[0]) > 64:
		return nil, status.Error(codes.InvalidArgument, "value too long for type character varying(64)")
	case b.breach == "slow" && len(r.GetIds()) > 200:
		<-time.After(1700 * time.Millisecond) // as long as this fault is
	}
	answer := &pb.ConfirmResponse{}
	say := func(id string, v pb.Verdict) {
		answer.Confirmations = append(answer.Confirmations, &pb.Confirmation{Id: id, Verdict: v})
	}
	for i, id := range r.GetIds() {
		say(b.of(i, id, r.GetFinal(), say))
	}
	if b.breach == "leaves out" && len(answer.Confirmations) > 1 {
		answer.Confirmations = answer.Confirmations[1:]
	}
	return answer, nil
}

// of is the verdict about an id, with a breach if the question is final.
func (b *book) of(i int, id string, final bool, say func(string, pb.Verdict)) (string, pb.Verdict) {
	switch {
	case id == "1001" && b.breach != "denies",
		b.breach == "commits finally" && final,
		b.breach == "commits the last" && i == 499:
		return id, pb.Verdict_VERDICT_COMMITTED
	case b.breach == "invents a verdict" && i > 0:
		return id, 9
	case b.breach == "talks of others":
		say("other", pb.Verdict_VERDICT_COMMITTED)
	case b.breach == "undecided":
		return id, pb.Verdict_VERDICT_UNKNOWN
	}
	b.stone[id] = b.stone[id] || final && b.breach != "wavers"
	if b.stone[id] || final {
		return id, pb.Verdict_VERDICT_ROLLED_BACK
	}
	return id, pb.Verdict_VERDICT_UNKNOWN
}

func (b *book) DeleteBusiness(_ context.Context, r *pb.DeleteBusinessRequest) (*pb.DeleteBusinessResponse, error) {
	if b.breach == "keeps many" && len(r.GetIds()) > 1 || b.breach == "keeps nothing" && len(r.GetIds()) == 0 {
		return nil, status.Error(codes.Internal, "cannot delete")
	}
	return &pb.DeleteBusinessResponse{}, nil
}

// breaches are possible mistakes of a producer, with the findings that must follow.
var breaches = map[string]string{
	"fails a full batch": "producer-fails",
	"fails on nothing":   "producer-fails",
	"refuses long ids":   "producer-fails",
	"slow":               "producer-slow",
	"leaves out":         "producer-leaves-out",
	"commits the last":   "producer-commits-unknown",
	"commits finally":    "producer-commits-unknown",
	"invents a verdict":  "producer-confuses",
	"talks of others":    "producer-confuses",
	"denies":             "producer-denies",
	"undecided":          "producer-undecided",
	"wavers":             "producer-wavers",
	"keeps many":         "producer-keeps-markers",
	"keeps nothing":      "producer-keeps-markers",
}

func TestEachBreachOfContractIsFound(t *testing.T) {
	t.Parallel()
	for breach, want := range breaches {
		t.Run(breach, func(t *testing.T) {
			t.Parallel()
			b := &book{breach: breach, stone: map[string]bool{}}
			target := serveProducer(t, func(r grpc.ServiceRegistrar) { pb.RegisterProducerServiceServer(r, b) })
			found := verify(t, target, "1001")
			if names := complaints(t, found); !slices.Equal(names, []string{want}) {
				t.Errorf("found %q, want %q:\n%+v", names, want, found)
			}
		})
	}
}

func TestAnUnreachableProducerIsNotVerified(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{"127.0.0.1:1": "producer-away", "orders.svc:9000": "producer-forbidden"} {
		found := verify(t, target)
		if names := complaints(t, found); !slices.Equal(names, []string{want}) || len(found) != 1 {
			t.Errorf("about %s the answer is %+v", target, found)
		}
	}
}

// Verify calls with the token of the settings, and once without the token.
func TestVerifyShowsTokenAndAsksWithout(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Callbacks.Allow, c.Callbacks.TokenFile = []string{"127.0.0.1:*"}, tokenFile(t, goodToken)
	open := serveProducer(t, func(r grpc.ServiceRegistrar) {
		pb.RegisterProducerServiceServer(r, &book{stone: map[string]bool{}})
	})
	for name, tc := range map[string]struct {
		target, token string
		want          []string
	}{
		"guarded":         {guarded(t, goodToken), goodToken, []string{"producer-undecided"}},
		"unguarded":       {open, goodToken, []string{"producer-unguarded"}},
		"of another":      {guarded(t, goodToken), "an0ther-0123456789abcdef", []string{"producer-refuses"}},
		"not shown a one": {guarded(t, goodToken), "", []string{"producer-refuses"}},
	} {
		of := c
		of.Producers = map[string]config.Producer{"stock": {TokenFile: new("")}}
		if tc.token != "" {
			of.Producers["stock"] = config.Producer{TokenFile: new(tokenFile(t, tc.token))}
		}
		found := doctor.Verify(t.Context(), doctor.Examination{Settings: of}, "stock", tc.target)
		if names := complaints(t, found); !slices.Equal(names, tc.want) {
			t.Errorf("%s: found %q, want %q: %+v", name, names, tc.want, found)
		}
		if text := fmt.Sprint(found); strings.Contains(text, goodToken) {
			t.Errorf("%s: the doctor shows the token", name)
		}
	}
}

// A missing answer is no refusal: the producer may answer strangers when less busy.
func TestASilentGuardIsNoRefusal(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Confirm.Timeout = 2 * time.Second
	c.Callbacks.Allow, c.Callbacks.TokenFile = []string{"127.0.0.1:*"}, tokenFile(t, goodToken)
	b := &book{stone: map[string]bool{}}
	target := serveProducer(t, func(r grpc.ServiceRegistrar) {
		pb.RegisterProducerServiceServer(r, silentGuard{b})
	})
	found := doctor.Verify(t.Context(), doctor.Examination{Settings: c}, "stock", target)
	if names := complaints(t, found); !slices.Equal(names, []string{"producer-guard-unknown"}) {
		t.Errorf("found %q: %+v", names, found)
	}
}

// silentGuard keeps callers without a token waiting.
type silentGuard struct{ *book }

func (g silentGuard) Confirm(ctx context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	if metadata.ValueFromIncomingContext(ctx, "authorization") == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return g.book.Confirm(ctx, r)
}
