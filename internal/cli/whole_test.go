package cli_test

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/internal/cli"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// serve runs msghandler serve on embedded servers, and returns its address and the function that stops the coordinator.
func serve(t *testing.T, args ...string) (addr string, stop func() int) {
	t.Helper()
	return serveWith(t, nil, args...)
}

// serveWith is serve with an environment.
func serveWith(t *testing.T, env []string, args ...string) (addr string, stop func() int) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	addr = free.Addr().String()
	_ = free.Close()
	redis, broker := embeddedtest.Redis(t), embeddedtest.Broker(t)
	ctx, cancel := context.WithCancel(context.Background())
	log, ended := &servers.Log{}, make(chan int, 1)
	go func() {
		ended <- cli.Run(ctx, commandline.Process{
			Args: append([]string{
				"serve", "--grpc.addr", addr, "--http.addr=127.0.0.1:0", "--redis.url", redis, "--amqp.url", broker,
			}, args...),
			Env: append(env, "MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*"), In: strings.NewReader(""), Out: log, Err: log,
		})
	}()
	stop = sync.OnceValue(func() int {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { stop() })
	defer func() {
		if t.Failed() {
			t.Log(log)
		}
	}()
	servers.Eventually(t, 20*time.Second, "the coordinator answers", func() bool {
		return run(nil, "stats", "--server", addr).status == 0
	})
	return addr, stop
}

func TestCommandsOnRealCoordinator(t *testing.T) {
	t.Parallel()
	addr, stop := serve(t, "--send.backoff=1ms")
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	defer conn.Close()
	client := msghandlerv1.NewMessageHandlerServiceClient(conn)
	for _, id := range []string{"1", "2", "3"} {
		if _, err := client.SendHalfMessage(t.Context(), &msghandlerv1.SendHalfMessageRequest{
			Producer: "orders", CallbackTarget: "127.0.0.1:1",
			Message: &msghandlerv1.Message{Id: id, RoutingKey: "nowhere", Body: []byte("order " + id)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"MSGHANDLER_SERVER=" + addr}
	run(env, "stats").want(t, 0, "pending        3 ", "")
	run(env, "list", "--state=pending", "--producer=orders").want(t, 0, "orders/2 ", "")
	run(env, "list", "--state=pending", "--exchange=elsewhere").want(t, 0, "no messages\n", "")
	run(env, "list", "--state=pending", "--older-than=1h").want(t, 0, "no messages\n", "")
	run(env, "discard", "--state=pending", "--limit=0", "-n").want(t, 0, "3 would be discarded\n", "")
	run(env, "show", "orders/1").want(t, 0, "order 1\n", "")
	run(env, "show", "orders/9").want(t, 3, "", "orders/9")
	run(env, "retry", "orders/1", "orders/9").want(t, 3, "retried 1\n", "orders/9")
	for _, pending := range [][]string{{"orders/1"}, {"orders/1", "--yes"}, {"--state=pending", "--yes"}} {
		run(env, append([]string{"discard"}, pending...)...).want(t, 2, "", "their businesses may have committed")
	}
	run(env, "stats").want(t, 0, "pending        3 ", "")
	run(env, "discard", "orders/1", "--reason=test", "--maybe-committed").want(t, 0, "discarded 1\n", "")
	run(env, "show", "orders/1").want(t, 3, "", "orders/1")
	run(env, "discard", "--state=dead", "--yes").want(t, 0, "discarded 0\n", "")
	run(env, "discard", "--state=pending", "--producer=orders", "--limit=1", "--yes", "--maybe-committed").
		want(t, 0, "discarded 1; more match", "")
	run(env, "history").want(t, 0,
		"no finished messages; without archive.retention each is forgotten after done.retention\n", "")
	run(env, "history", "--exchange=orders").want(t, 1, "", "archive.retention")
	run(env, "history", "--state=pending").want(t, 2, "", "done, rolled_back or discarded")
	run(env, "history", "--header=tenant").want(t, 2, "", "NAME=VALUE")
	run(env, "replay", "orders/1").want(t, 1, "", "archive.retention")
	run(env, "replay").want(t, 2, "", "which messages?")
	run(env, "replay", "orders/1", "--since=1h").want(t, 2, "", "not both")
	run(env, "replay", "--since=1h").want(t, 2, "", "--yes")
	got := run(env, "discard", "--state=pending", "--yes", "--maybe-committed", "--output=json")
	var document struct {
		Discarded int64
		More      bool
	}
	if err := json.Unmarshal([]byte(got.out), &document); err != nil || document.Discarded != 1 || document.More {
		t.Errorf("got %+v, %v", got, err)
	}
	if status := stop(); status != 0 {
		t.Errorf("serve ended with %d", status)
	}
}

// A reader knows the flags, and not the fields of the API.
func TestRefusedRequestsNameFlags(t *testing.T) {
	t.Parallel()
	addr, _ := serve(t)
	long, longer := strings.Repeat("a", 300), strings.Repeat("a", 2000)
	for flag, command := range map[string][]string{
		"--routing-key": {"list", "--state=dead", "--routing-key=" + long},
		"--id":          {"list", "--id=" + long},
		"--error":       {"list", "--group", "--error=" + longer},
		"--header":      {"history", "--header==" + long},
		"--by":          {"audit", "--by=" + longer},
		"--action":      {"audit", "--action=" + longer},
		"--producer":    {"retry", "--state=dead", "--yes", "--producer=" + long},
		"--cause":       {"discard", "--state=dead", "--yes", "--cause=" + longer},
		"--older-than":  {"list", "--older-than=99999d"},
		"--since":       {"audit", "--since=99999d"},
		"--until":       {"problems", "--since=1h", "--until=2h"},
	} {
		got := run(nil, append(command, "--server", addr)...)
		text, _, _ := strings.Cut(strings.ReplaceAll(got.err, long, ""), "\n")
		if got.status != 2 || !strings.Contains(text, flag) || strings.Contains(text, "_") {
			t.Errorf("%s: status %d: %s", flag, got.status, text)
		}
	}
}
