package producer_test

import (
	"context"
	"database/sql"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	_ "modernc.org/sqlite"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/memory"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

// database is a producer's own database with markers, and their identity.
func database(t *testing.T) (*sqlmarker.Store, string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "business.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	store, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: sqlmarker.SQLite, Producer: "orders"})
	if err == nil {
		err = store.Migrate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	identity, err := store.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return store, identity
}

// ways are the ways in which a coordinator asks a process that has those markers. Each returns the target to send.
var ways = map[string]func(*testing.T, marker.Store, string) (target string, p *producer.Producer){
	"attend": func(t *testing.T, markers marker.Store, coordinator string) (string, *producer.Producer) {
		return "", attending(t, markers, &servers.Log{}, coordinator)
	},
	"grpc": func(t *testing.T, markers marker.Store, coordinator string) (string, *producer.Producer) {
		listener := listen(t)
		p := called(t, markers, coordinator, listener.Addr().String())
		server := grpc.NewServer()
		p.Register(server)
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(server.Stop)
		return listener.Addr().String(), p
	},
	"http": func(t *testing.T, markers marker.Store, coordinator string) (string, *producer.Producer) {
		listener := listen(t)
		p := called(t, markers, coordinator, "http://"+listener.Addr().String())
		server := &http.Server{Handler: p.HTTPHandler(), ReadTimeout: time.Minute}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
		return "http://" + listener.Addr().String(), p
	},
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// called is a producer with a target.
func called(t *testing.T, markers marker.Store, coordinator, target string) *producer.Producer {
	t.Helper()
	p, err := producer.New(producer.Config{
		Name: "orders", Coordinator: coordinator, CallbackTarget: target, Markers: markers,
		Coordinators: producer.Coordinators{Anyone: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// A process with another database answers under the producer's name. Its final answer must not remove a committed
// message, and must leave nothing in its own database.
func TestOtherDatabaseDecidesNothing(t *testing.T) {
	t.Parallel()
	for name, serve := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := coordinator(t, embeddedtest.Redis(t), func(c *config.Config, _ *app.Bounds) {
				c.Callbacks.Allow = []string{"127.0.0.1:*"}
				c.Confirm.After, c.Confirm.Attempts = 100*time.Millisecond, 1
				c.Confirm.Backoff = []time.Duration{50 * time.Millisecond}
			})
			right, identity := database(t)
			wrong, _ := database(t)
			target, own := serve(t, wrong, a.GRPCAddr())
			err := own.Send(t.Context(), producer.Message{ID: "own", RoutingKey: "nowhere"}, func(ctx context.Context) error {
				_, err := wrong.Put(ctx, []string{"own"}, marker.Committed)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			client := pb.NewMessageHandlerServiceClient(dial(t, a.GRPCAddr()))
			_, err = client.SendHalfMessage(t.Context(), &pb.SendHalfMessageRequest{
				Producer: "orders", CallbackTarget: target, MarkerStore: identity,
				Message: &pb.Message{Id: "1", RoutingKey: "nowhere", Body: []byte("1")},
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := right.Put(t.Context(), []string{"1"}, marker.Committed); err != nil {
				t.Fatal(err)
			}
			awaitSplit(t, a)
			awaitSendable(t, a, "own")
			if r := record(t, a, "1"); r.GetState() != pb.State_STATE_PENDING || r.GetConfirmAttempts() != 0 ||
				r.GetMarkerStore() != identity || !strings.Contains(r.GetLastError(), identity) {
				t.Errorf("the message is %v", r)
			}
			if found, err := wrong.Lookup(t.Context(), []string{"1"}, false); err != nil || len(found) > 0 {
				t.Errorf("the other database holds %v, %v", found, err)
			}
			if name == "attend" {
				attending(t, right, &servers.Log{}, a.GRPCAddr())
				awaitSendable(t, a, "1")
			}
		})
	}
}

// awaitSplit waits until the finding tells of three answers.
func awaitSplit(t *testing.T, a *app.App) {
	t.Helper()
	admin := adminv1.NewAdminServiceClient(dial(t, a.GRPCAddr()))
	servers.Eventually(t, 30*time.Second, "the producer is found to be split", func() bool {
		stats, err := admin.GetStats(t.Context(), &adminv1.GetStatsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range stats.GetFindings() {
			if f.GetName() == "producer-split" {
				return !strings.Contains(f.GetWhat(), ": 1 since")
			}
		}
		return false
	})
}

func record(t *testing.T, a *app.App, id string) *adminv1.MessageRecord {
	t.Helper()
	r, err := adminv1.NewAdminServiceClient(dial(t, a.GRPCAddr())).GetMessage(t.Context(),
		&adminv1.GetMessageRequest{Producer: "orders", Id: id})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetRecord()
}

// Markers in memory are for one replica: a second one cannot answer for the first.
func TestSecondReplicaWithMemoryIsReported(t *testing.T) {
	t.Parallel()
	a := coordinator(t, embeddedtest.Redis(t))
	for range 3 {
		if err := send(t, attending(t, memory.New(), &servers.Log{}, a.GRPCAddr()), t.Name()); err != nil {
			t.Log(err) // the second and third replica send the same id again
		}
	}
	awaitSplit(t, a)
}
