package cli_test

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/cli"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// watch runs a command until stop, which returns its exit status.
func watch(t *testing.T, args ...string) (out *servers.Log, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out = &servers.Log{}
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(ctx, commandline.Process{Args: args, In: strings.NewReader(""), Out: out, Err: out})
	}()
	t.Cleanup(cancel)
	return out, func() int {
		cancel()
		return <-ended
	}
}

func TestWatchCountsUntilStopped(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	out, stop := watch(t, "stats", "--watch", "--every=100ms", "--server="+c.addr)
	servers.Eventually(t, 20*time.Second, "more counts", func() bool {
		return strings.Count(out.String(), "pending   1") > 2
	})
	if status := stop(); status != 0 {
		t.Errorf("the command ended with %d:\n%s", status, out)
	}
	run(nil, "stats", "--watch", "--every=1ms", "--server="+c.addr).want(t, 2, "", "--every=1ms")
}

// The fake coordinator knows no TailMessages.
func TestTopShowsGroupsOfCoordinator(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	c.grouped = map[msghandlerv1.State]*adminv1.GroupMessagesResponse{
		msghandlerv1.State_STATE_DEAD: {
			Groups: []*adminv1.MessageGroup{
				{Producer: "orders", Exchange: "shop", Cause: "312 NO_ROUTE", Count: 70_000, ExampleId: "1"},
				{Producer: "orders", Count: 12, ExampleId: "2"},
			},
			SampleSize: 2000, TotalSize: 70_012, OmittedGroups: 3,
		},
		msghandlerv1.State_STATE_PENDING: {
			Groups: []*adminv1.MessageGroup{
				{Producer: "stock", Count: 90, ExampleId: "healthy"},
				{Producer: "stock", Cause: "connection refused", Count: 40, ExampleId: "8", ExampleError: "dial: refused"},
			},
			SampleSize: 130, TotalSize: 130,
		},
	}
	c.sums = &adminv1.GetStatsResponse{
		Flow: &adminv1.FlowStats{
			CoordinatorCount: 3, StoredPerSecond: 1420, AcknowledgedPerSecond: 7.2,
			LatencyP50: durationpb.New(31 * time.Millisecond),
		},
		Producers: []*adminv1.ProducerStats{{Name: "billing", StoredPerSecond: 2}, {Name: "orders", StoredPerSecond: 9}},
	}
	out, stop := watch(t, "top", "--every=100ms", "--server="+c.addr)
	servers.Eventually(t, 20*time.Second, "more screens", func() bool {
		return strings.Count(out.String(), "IN TROUBLE") > 2
	})
	if status := stop(); status != 0 {
		t.Errorf("the command ended with %d:\n%s", status, out)
	}
	_, screen, _ := strings.Cut(out.String(), "IN TROUBLE\n")
	screen, producers, _ := strings.Cut(screen, "\nPRODUCERS\n")
	const want = `COUNT    STATE     EXCHANGE    OLDEST   MESSAGE    CAUSE
~70000   dead      shop        -        orders/1   312 NO_ROUTE
40       pending   (default)   -        stock/8    connection refused
~12      dead      (default)   -        orders/2   (none)
the coordinator leaves out 3 smaller groups
`
	if screen != want {
		t.Errorf("the groups are\n%s, want\n%s", screen, want)
	}
	if _, first, _ := strings.Cut(producers, "\n"); !strings.HasPrefix(first, "orders ") {
		t.Errorf("the busiest producer is not the first:\n%s", producers)
	}
	if !strings.Contains(out.String(), "\nin 1420/s   out 7.2/s   refused 0/s   p50 31 ms   p99 -   of 3 coordinators\n") {
		t.Errorf("the sums of the fleet are missing:\n%s", out)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("the command controls no terminal:\n%s", out)
	}
	run(nil, "tail", "--server="+c.addr).want(t, 1, "", "lacks this command or flag; nothing was done")
	run(nil, "tail", "--state=nonsense", "--server="+c.addr).want(t, 2, "", "--state=nonsense")
}

func TestTailTimesOutOnSilentServer(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0") // the system takes connections, and no process reads them
	must.Succeed(t, err)
	defer mute.Close()
	run(nil, "tail", "--timeout=200ms", "--server="+mute.Addr().String()).want(t, 1, "", "did not answer within 200ms")
}

func TestTailPrintsMoves(t *testing.T) {
	t.Parallel()
	addr, _ := serve(t)
	all, stopAll := watch(t, "tail", "--server", addr)
	some, stopSome := watch(t, "tail", "--server", addr, "--producer=orders", "--state=rolled_back",
		"--output=json", "--limit=1")
	_ = stopSome
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	defer conn.Close()
	client := msghandlerv1.NewMessageHandlerServiceClient(conn)
	send := func(producer, id string) {
		if _, err := client.SendHalfMessage(t.Context(), &msghandlerv1.SendHalfMessageRequest{
			Producer: producer, CallbackTarget: "127.0.0.1:1", Message: &msghandlerv1.Message{Id: id, RoutingKey: "nowhere"},
		}); err != nil {
			t.Fatal(err)
		}
	}
	// The watchers see moves only after the stream has begun, so moves happen until the watchers print.
	servers.Eventually(t, 20*time.Second, "both listen", func() bool {
		id := time.Now().Format("150405.000000000")
		send("orders", id)
		if _, err := client.Rollback(t.Context(), &msghandlerv1.RollbackRequest{Producer: "orders", Id: id}); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(all.String(), "rolled_back  orders/") && some.String() != ""
	})
	send("stock", "7")
	run([]string{"MSGHANDLER_SERVER=" + addr}, "discard", "stock/7", "--maybe-committed").want(t, 0, "discarded 1\n", "")
	servers.Eventually(t, 20*time.Second, "both moves", func() bool {
		return strings.Contains(all.String(), "pending      stock/7\n") &&
			strings.Contains(all.String(), "gone         stock/7\n")
	})
	var one struct{ Producer, ID, State string }
	err = json.Unmarshal([]byte(some.String()), &one)
	if err != nil || one.State != "rolled_back" || one.Producer != "orders" {
		t.Errorf("with a filter tail prints %s, %v", some, err)
	}
	if status := stopAll(); status != 0 {
		t.Errorf("tail ended with %d:\n%s", status, all)
	}
}
