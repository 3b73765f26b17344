package languages

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/access/tokenfile"
	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/proto/certs"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

// The first token is the coordinator's, and producers take both.
const (
	token      = "0d1f7a35c2be4f0e9a66-coordinator"
	otherToken = "7be1c0ffee0d15ea5e11-other"
)

// coordinator is what the producers of all languages share.
type coordinator struct {
	address, amqp string
	// token and tokens are the files of the coordinator's token, and of the tokens that producers take.
	token, tokens string
	// caller is the file of the token that the producers show the coordinator.
	caller string
	admin  adminv1.AdminServiceClient
}

func startCoordinator(t *testing.T) *coordinator {
	t.Helper()
	dir := t.TempDir()
	c := config.Default()
	c.GRPC.Addr, c.HTTP.Addr = "127.0.0.1:0", "127.0.0.1:0"
	c.Redis.URL, c.AMQP.URLs = servers.Redis(t).URL(), []string{servers.RabbitMQ(t).URL}
	// Short times: the last Confirm call about a silent message comes within a second.
	c.Confirm.Schedule, c.Send.Schedule = "@every 100ms", "@every 100ms"
	c.Confirm.After, c.Confirm.Backoff = 500*time.Millisecond, []time.Duration{100 * time.Millisecond}
	c.Confirm.Attempts = 2
	c.Callbacks.Allow = []string{"127.0.0.1:*"}
	c.Callbacks.TokenFile = writeFile(t, dir, "token", token+"\n")
	c.Access.TokenFile = filepath.Join(dir, "callers")
	caller, admin := newCaller(t, c.Access.TokenFile, "producers"), newCaller(t, c.Access.TokenFile, "admin")
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.New(t.Context(), c, app.Deps{Version: "v1.0.0", Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = a.Run(context.Background()) }()
	conn, err := grpc.NewClient(a.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(certs.Bearer(func() string { return admin }, true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		_ = a.Stop(context.Background())
		_ = log.Close()
		if lines, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the end of the log of the coordinator:\n%s", lines[max(0, len(lines)-6000):])
		}
	})
	r := &coordinator{
		address: a.GRPCAddr(), amqp: c.AMQP.URLs[0], token: c.Callbacks.TokenFile, admin: adminv1.NewAdminServiceClient(conn),
		caller: writeFile(t, dir, "caller", "# of the producers\n"+caller+"\n"+otherToken+"\n"),
		tokens: writeFile(t, dir, "tokens", "# of the coordinators\n"+token+"\n"+otherToken+"\n"),
	}
	servers.Eventually(t, 20*time.Second, "the coordinator serves", func() bool {
		_, err := r.admin.GetStats(t.Context(), &adminv1.GetStatsRequest{})
		return err == nil
	})
	return r
}

// newCaller makes a token of the coordinator's callers: of all producers of these tests, or of an admin.
func newCaller(t *testing.T, file, name string) (secret string) {
	t.Helper()
	secret = tokenfile.NewSecret()
	made := tokenfile.Token{Name: name, Sum: sha256.Sum256([]byte(secret)), Producers: []string{"*-orders"}}
	if name == "admin" {
		made.Role, made.Producers = access.Admin, nil
	}
	if err := tokenfile.Add(file, made); err != nil {
		t.Fatal(err)
	}
	return secret
}

// unfinished counts the messages of a producer that are on their way.
func (c *coordinator) unfinished(t *testing.T, producer string) (n int64) {
	t.Helper()
	for _, state := range []pb.State{
		pb.State_STATE_PENDING, pb.State_STATE_SENDABLE, pb.State_STATE_ABANDONED, pb.State_STATE_DEAD,
	} {
		page, err := c.admin.ListMessages(t.Context(), &adminv1.ListMessagesRequest{
			Filter: &adminv1.MessageFilter{State: state, Producer: producer},
		})
		if err != nil {
			t.Fatal(err)
		}
		n += int64(len(page.GetRecords()))
	}
	return n
}

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
