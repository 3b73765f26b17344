// Package console looks at the console as operators do: in a browser, with a real coordinator behind it.
//
//	make screenshots      # or: go test ./test/console -run TestScreenshots -args -shots docs/img
package console

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/browser"
	"github.com/msghandler/msghandler/test/servers"
)

var (
	listed = flag.Int("listed", 10_000, "how many messages are listed")
	turned = flag.Int("turned", 13, "how many pages of them are turned in the browser; the others are read through the "+
		"API")
	shots = flag.String("shots", "", "where screenshots go; they are made and thrown away where it is empty")
)

func TestMain(m *testing.M) { servers.Main(m) }

// coordinator is a running coordinator, with a producer whose answers follow from the ids.
type coordinator struct {
	*testing.T
	*app.App
	log     *servers.Log
	sender  msghandlerv1.MessageHandlerServiceClient
	admin   adminv1.AdminServiceClient
	address string // the producer's
	redis   string // its URL
}

// start runs a coordinator on a real Redis until the test ends. Its producer answers UNKNOWN for ids that begin with
// "lost", and missing exchanges refuse.
func start(t *testing.T, change ...func(*config.Config)) *coordinator {
	t.Helper()
	return startWith(t, "", change...)
}

// startWith is start for a test that shows a token.
func startWith(t *testing.T, token bearer, change ...func(*config.Config)) *coordinator {
	t.Helper()
	c := config.Default()
	c.GRPC.Addr, c.HTTP.Addr = "127.0.0.1:0", "127.0.0.1:0"
	c.Redis.URL, c.AMQP.URLs = servers.Redis(t).URL(), []string{embeddedtest.Broker(t)}
	c.Confirm.Schedule, c.Send.Schedule = "@every 100ms", "@every 100ms"
	c.Confirm.Attempts, c.Confirm.Backoff = 1, []time.Duration{10 * time.Millisecond}
	c.Send.Backoff = []time.Duration{10 * time.Millisecond}
	c.Callbacks.Allow = []string{"127.0.0.1:*"}
	for _, f := range change {
		f(&c)
	}
	log := &servers.Log{}
	a, err := app.New(t.Context(), c, app.Deps{Version: "v1.0.0", Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = a.Run(context.Background()) }()
	t.Cleanup(func() { _ = a.Stop(context.Background()) })
	conn, err := grpc.NewClient(a.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(token))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	r := &coordinator{
		T: t, App: a, log: log, address: producer(t),
		sender: msghandlerv1.NewMessageHandlerServiceClient(conn), admin: adminv1.NewAdminServiceClient(conn),
	}
	servers.Eventually(t, 20*time.Second, "the coordinator serves", func() bool {
		_, err := r.admin.GetStats(t.Context(), &adminv1.GetStatsRequest{})
		return err == nil
	})
	r.redis = c.Redis.URL
	return r
}

// bearer is the token of each call; empty: none.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if b == "" {
		return nil, nil
	}
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return false }

// store stores messages as the coordinator would, and sooner.
func (r *coordinator) store(messages []halfmsg.Message) {
	r.Helper()
	store, err := redisstore.New(r.Context(), redisstore.Config{
		URL: r.redis, Prefix: "msghandler", Retention: 10 * time.Minute, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		r.Fatal(err)
	}
	defer store.Close()
	for part := range slices.Chunk(messages, 1000) {
		for _, result := range store.Create(r.Context(), part) {
			if result.Err != nil {
				r.Fatal(result.Err)
			}
		}
	}
}

// send stores messages, and submits them where asked.
func (r *coordinator) send(producer string, submit bool, messages ...*msghandlerv1.Message) {
	r.Helper()
	for len(messages) > 0 {
		part := messages[:min(len(messages), 500)]
		messages = messages[len(part):]
		sent, err := r.sender.SendHalfMessages(r.Context(), &msghandlerv1.SendHalfMessagesRequest{
			Producer: producer, CallbackTarget: r.address, Messages: part,
		})
		if err != nil || sent.GetOutcomes()[0].GetCode() != 0 {
			r.Fatalf("send: %v, %v", sent, err)
		}
		if !submit {
			continue
		}
		all := &msghandlerv1.SubmitAllRequest{Producer: producer}
		for _, m := range part {
			all.Ids = append(all.Ids, m.GetId())
		}
		if _, err := r.sender.SubmitAll(r.Context(), all); err != nil {
			r.Fatal(err)
		}
	}
}

// count waits until so many messages stand in a state.
func (r *coordinator) await(state msghandlerv1.State, want int64) {
	r.Helper()
	var last *adminv1.GetStatsResponse
	defer func() {
		if r.Failed() {
			r.Logf("%v\n%s", last, r.log)
		}
	}()
	servers.Eventually(r, 30*time.Second, fmt.Sprintf("%d are %s", want, state), func() bool {
		last, _ = r.admin.GetStats(r.Context(), &adminv1.GetStatsRequest{})
		for _, s := range last.GetStates() {
			if s.GetState() == state {
				return s.GetCount() == want
			}
		}
		return false
	})
}

// many makes messages with ids of a common prefix.
func many(n int, id, exchange string) (all []*msghandlerv1.Message) {
	for i := range n {
		all = append(all, &msghandlerv1.Message{
			Id: fmt.Sprintf("%s-%06d", id, i+1), Exchange: exchange, RoutingKey: "order.paid", ContentType: "application/json",
			Body: fmt.Appendf(nil, `{"order":%d,"customer":"Zoë","lines":[{"sku":"A-17","count":2}]}`, i+1),
		})
	}
	return all
}

// answers is a producer.
type answers struct {
	msghandlerv1.UnimplementedProducerServiceServer
}

func producer(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	msghandlerv1.RegisterProducerServiceServer(s, answers{})
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(s.Stop)
	return listener.Addr().String()
}

func (answers) Confirm(_ context.Context, r *msghandlerv1.ConfirmRequest) (*msghandlerv1.ConfirmResponse, error) {
	answer := &msghandlerv1.ConfirmResponse{}
	for _, id := range r.GetIds() {
		verdict := msghandlerv1.Verdict_VERDICT_COMMITTED
		if strings.HasPrefix(id, "lost") {
			verdict = msghandlerv1.Verdict_VERDICT_UNKNOWN
		}
		answer.Confirmations = append(answer.Confirmations, &msghandlerv1.Confirmation{Id: id, Verdict: verdict})
	}
	return answer, nil
}

func (answers) DeleteBusiness(
	context.Context, *msghandlerv1.DeleteBusinessRequest,
) (*msghandlerv1.DeleteBusinessResponse, error) {
	return &msghandlerv1.DeleteBusinessResponse{}, nil
}

// browse opens a tab of the browser for the console at an address.
func browse(t testing.TB, address string) *browser.Tab {
	t.Helper()
	return browser.Start(t, "http://"+address)
}
