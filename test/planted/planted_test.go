package planted

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/msghandler/msghandler/internal/app/doctor"
	"github.com/msghandler/msghandler/internal/config"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const token = "planted-0123456789abcdef0123456789"

// fleet starts a producer with a bug at two addresses: two replicas, or the same before and after a restart.
type fleet func(t *testing.T, b bug) (first, second string)

func TestPlantedBugsInGoAreFound(t *testing.T) {
	t.Parallel()
	findAll(t, func(t *testing.T, b bug) (first, second string) {
		db := newTable(b)
		return newWrong(b, db).serve(t), newWrong(b, db).serve(t)
	})
}

// findAll verifies a producer with each bug, with its needs and without them.
func findAll(t *testing.T, start fleet) {
	t.Helper()
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			first, second := start(t, b)
			found := verify(t, b, b.needs, first, second)
			if names := complaints(found); b.finding != "" && !slices.Contains(names, b.finding) ||
				b.finding == "" && len(names) > 0 {
				t.Errorf("found %q, want %q: %+v", names, b.finding, found)
			}
			if b.needs == nothing || b.needs == databaseAway {
				return
			}
			if names := complaints(verify(t, b, nothing, first, second)); len(names) > 0 {
				t.Errorf("found %q without %s", names, b.needs)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		first, second := start(t, bug{name: "none"})
		for _, needs := range []string{nothing, committed, rolledBack, deleted, running, replicas} {
			if found := complaints(verify(t, bug{}, needs, first, second)); len(found) > 0 {
				t.Errorf("of a producer without a bug the test finds %q, with %q", found, needs)
			}
		}
		first, _ = start(t, bug{name: "database-away"})
		if found := complaints(verify(t, bug{}, databaseAway, first, "")); len(found) > 0 {
			t.Errorf("of a producer without its database the test finds %q", found)
		}
	})
}

// verify runs verify-producer with the needs of a bug.
func verify(t *testing.T, b bug, needs, first, second string) []doctor.Finding {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	c.Confirm.Timeout = 2 * time.Second // of which slow bugs take more
	c.Callbacks.Allow, c.Callbacks.TokenFile = []string{"127.0.0.1:*"}, file
	e := doctor.Examination{Settings: c, DatabaseAway: needs == databaseAway}
	address, ids := first, []string(nil)
	switch needs {
	case committed:
		ids = []string{committedID}
	case running:
		e.Known.Running = []string{runningID}
	case deleted:
		e.Known.Deleted = []string{deletedID}
	case rolledBack:
		e.Known.RolledBack = []string{rolledBackID}
		if b.name == "tombstone-in-memory" { // settled before the restart
			askFinally(t, first, "settled-before")
			e.Known.RolledBack, address = []string{"settled-before"}, second
		}
	case replicas:
		address = balance(t, first, second)
	}
	return doctor.Verify(t.Context(), e, "orders", address, ids...)
}

// askFinally asks a producer the final question about an id.
func askFinally(t *testing.T, address, id string) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
	answer, err := pb.NewProducerServiceClient(conn).Confirm(ctx, &pb.ConfirmRequest{
		Producer: "orders", Ids: []string{id}, Final: true,
	})
	if err != nil || answer.GetConfirmations()[0].GetVerdict() != isRolled {
		t.Fatalf("the final question is answered %v, %v", answer, err)
	}
}

// complaints are the names of the findings that are not OK.
func complaints(found []doctor.Finding) (names []string) {
	for _, f := range found {
		if f.Severity > doctor.Note {
			names = append(names, f.Name)
		}
	}
	return names
}

// balance is a load balancer that leads each connection to the next address.
func balance(t *testing.T, addresses ...string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for n := 0; ; n++ {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addresses[n%len(addresses)])
			if err != nil {
				_ = client.Close()
				continue
			}
			running.Go(func() { forward(client, server) })
			running.Go(func() { forward(server, client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return listener.Addr().String()
}

// forward copies until an end closes, and then closes both.
func forward(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}
