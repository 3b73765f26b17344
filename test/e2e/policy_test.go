package e2e

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

// governed are two coordinators with one configuration file and one Redis.
type governed struct {
	t         *testing.T
	file      string
	processes []*programs.Process
	consoles  []string
	clients   []msghandlerv1.MessageHandlerServiceClient
	ids       atomic.Int64
}

func startGoverned(t *testing.T, rules string) *governed {
	t.Helper()
	g := &governed{t: t, file: filepath.Join(t.TempDir(), "msghandler.yaml")}
	g.write(rules)
	redis, amqp := servers.Redis(t).URL(), servers.RabbitMQ(t).URL
	for range 2 {
		addresses := servers.Addresses(t, 2)
		p := programs.Start(t, "msghandler", []string{
			"MSGHANDLER_CONFIG=" + g.file, "MSGHANDLER_GRPC_ADDR=" + addresses[0], "MSGHANDLER_HTTP_ADDR=" + addresses[1],
			"MSGHANDLER_REDIS_URL=" + redis, "MSGHANDLER_AMQP_URL=" + amqp, "MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*",
			"MSGHANDLER_CONFIRM_AFTER=10m",
		}, "serve")
		p.Says("msg=serving", 30*time.Second)
		conn, err := grpc.NewClient(addresses[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		g.processes, g.consoles = append(g.processes, p), append(g.consoles, addresses[1])
		g.clients = append(g.clients, msghandlerv1.NewMessageHandlerServiceClient(conn))
	}
	return g
}

func (g *governed) write(rules string) {
	g.t.Helper()
	if err := os.WriteFile(g.file, []byte(rules), 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// send sends a half message through a coordinator, with a body that cannot be packed. It returns the answer's code.
func (g *governed) send(coordinator int, producer, exchange string, body int) codes.Code {
	content := make([]byte, body)
	_, _ = rand.Read(content) // it never fails
	_, err := g.clients[coordinator].SendHalfMessage(g.t.Context(), &msghandlerv1.SendHalfMessageRequest{
		Producer: producer, CallbackTarget: "127.0.0.1:9000", Message: &msghandlerv1.Message{
			Id: fmt.Sprint("p", g.ids.Add(1)), Exchange: exchange, RoutingKey: "paid", Body: content,
		},
	})
	return status.Code(err)
}

// TestPolicyChangesUnderTraffic changes the rules by a changed file, once with a SIGHUP beside it, while messages that
// both the old and the new rules allow are sent all the time. None of them fails.
func TestPolicyChangesUnderTraffic(t *testing.T) {
	t.Parallel()
	g := startGoverned(t, "policy: {exchanges: [shop]}\n")
	stop := make(chan struct{})
	var traffic sync.WaitGroup
	var sent atomic.Int64
	for coordinator := range g.clients {
		traffic.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if code := g.send(coordinator, "orders", "shop", 10); code != codes.OK {
					t.Errorf("an allowed message: %s", code)
					return
				}
				sent.Add(1)
			}
		})
	}
	everywhere := func(what string, want codes.Code) {
		t.Helper()
		for coordinator := range g.clients {
			servers.Eventually(t, 20*time.Second, what, func() bool {
				return g.send(coordinator, "orders", "stock", 10) == want
			})
		}
	}
	everywhere("stock is forbidden", codes.PermissionDenied)
	g.write("policy: {exchanges: [shop, stock]}\n")
	everywhere("the changed file allows stock", codes.OK)
	g.write("policy: {exchanges: [shop]}\n")
	for _, p := range g.processes {
		if err := p.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	everywhere("stock is forbidden after SIGHUP", codes.PermissionDenied)
	close(stop)
	traffic.Wait()
	if sent.Load() == 0 {
		t.Error("there was no traffic")
	}
}

// TestLimitsHoldOverCoordinators sends through two coordinators by turns, until both refuse.
func TestLimitsHoldOverCoordinators(t *testing.T) {
	t.Parallel()
	const most, size, maxBytes = 50, 10_000, 200_000
	g := startGoverned(t, fmt.Sprintf(
		"producers:\n  counted: {max_unfinished: %d}\n  weighed: {max_unfinished_bytes: %d}\n", most, maxBytes))
	accepted := 0
	for i := range 2 * most {
		if g.send(i%2, "counted", "shop", 10) == codes.OK {
			accepted++
		}
	}
	if accepted != most {
		t.Errorf("two coordinators accepted %d messages, want %d", accepted, most)
	}
	// Each coordinator counts its own bytes at once, and those of the other when it looks, which is every second.
	accepted = 0
	for range 2 * maxBytes / size {
		if g.send(0, "weighed", "shop", size) == codes.OK {
			accepted++
		}
	}
	if accepted != maxBytes/size-1 { // the rest of a message takes some bytes too
		t.Errorf("a coordinator accepted %d messages of %d bytes, and the limit is %d", accepted, size, maxBytes)
	}
	looks := g.looks(1)
	servers.Eventually(t, 20*time.Second, "the other coordinator looks", func() bool { return g.looks(1) > looks+1 })
	if code := g.send(1, "weighed", "shop", size); code != codes.ResourceExhausted {
		t.Errorf("the other coordinator answers %s", code)
	}
	if g.send(0, "other", "shop", size) != codes.OK {
		t.Error("another producer is limited too")
	}
}

// looks is how often a coordinator has counted the bytes of producers in Redis.
func (g *governed) looks(coordinator int) (n float64) {
	g.t.Helper()
	answer, err := http.Get("http://" + g.consoles[coordinator] + "/metrics")
	if err != nil {
		g.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), `msghandler_script_seconds_count{script="bytes"} `)
	_, _ = fmt.Sscan(rest, &n) // 0 before the first look
	return n
}
