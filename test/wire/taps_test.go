package wire_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// notes are events in words, in their order.
type notes struct {
	mu  sync.Mutex
	all []string
}

func (n *notes) record(e wire.Event) wire.Act {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, fmt.Sprint(e.Name, " ", e.Phase, " ", e.Messages))
	return wire.Pass
}

// of returns the events of these names, and forgets all events.
func (n *notes) of(names ...string) (found []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, words := range n.all {
		name, _, _ := strings.Cut(words, " ")
		if slices.Contains(names, name) {
			found = append(found, words)
		}
	}
	n.all = nil
	return found
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// at is a hook that acts once, at an event of that name and phase.
func at(name string, phase wire.Phase, act wire.Act) wire.Hook {
	var once sync.Once
	return func(e wire.Event) wire.Act {
		result := wire.Pass
		if e.Name == name && e.Phase == phase {
			once.Do(func() { result = act })
		}
		return result
	}
}

// behind is a store on a private server, through a proxy.
func behind(t *testing.T, shards int) (*wire.Proxy, *redisstore.Store, *servers.RedisServer) {
	t.Helper()
	server := servers.Redis(t)
	p := wire.Redis(t, server.Addr)
	store, err := redisstore.New(t.Context(), redisstore.Config{
		URL: p.URL(server.URL()), Prefix: "msghandler", Retention: 10 * time.Minute, Shards: shards,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return p, store, server
}

func half(id string) halfmsg.Message {
	return halfmsg.Message{
		Name: halfmsg.Name{Producer: "orders", ID: id}, Exchange: "orders",
		Body: []byte("body\r\nof " + id),
	}
}

// The scripts, the messages and the events are reported as they pass; the messages of a claim come from its reply.
func TestTapReportsScripts(t *testing.T) {
	t.Parallel()
	p, store, server := behind(t, 1)
	var recorded notes
	p.On(recorded.record)
	two := []halfmsg.Message{half("1"), half("2")}
	store.Create(t.Context(), two)
	want(t, "create", recorded.of("create"), "create before [{orders/1 } {orders/2 }]",
		"create after [{orders/1 } {orders/2 }]")

	submitted := store.Submit(t.Context(), []halfmsg.Name{two[0].Name}, time.Minute)
	want(t, "submit", recorded.of("submit"), "submit before [{orders/1 }]", "submit after [{orders/1 }]")
	if _, err := store.ClaimPending(t.Context(), map[string]int{"orders": 10}, time.Minute); err != nil {
		t.Fatal(err)
	}
	want(t, "claim", recorded.of("claim"), "claim before []", "claim after [{orders/2 }]")

	settle(t, store, submitted[0].Claim, halfmsg.EventCommitted, time.Minute)
	want(t, "verdict", recorded.of("move"), // the claim has put the message into an index
		"move before [{orders/1 committed}]", "move after []",
		"move before [{orders/1 committed}]", "move after [{orders/1 committed}]")
	settle(t, store, submitted[0].Claim, halfmsg.EventAcked, 0)
	want(t, "done", recorded.of("move"), "move before [{orders/1 acked}]", "move after [{orders/1 acked}]")
	trusted := half("3")
	store.Create(t.Context(), []halfmsg.Message{trusted})
	store.SubmitTrusted(t.Context(), []halfmsg.Name{trusted.Name}, time.Minute)
	want(t, "trust", recorded.of("trust"), "trust before [{orders/3 }]", "trust after [{orders/3 }]")

	// A script for paged messages leaves those that are not ordinary, and the reply names the others.
	store.Create(t.Context(), []halfmsg.Message{two[1], half("4")})
	want(t, "create", recorded.of("create"), "create before [{orders/2 } {orders/4 }]", "create after []",
		"create before [{orders/2 } {orders/4 }]", "create after [{orders/2 } {orders/4 }]")
	paged := half("5")
	paged.ConfirmAfter = time.Hour
	store.Create(t.Context(), []halfmsg.Message{paged})
	claim := store.Submit(t.Context(), []halfmsg.Name{two[1].Name, paged.Name}, time.Minute)[1].Claim
	want(t, "submit", recorded.of("submit"), "submit before [{orders/2 } {orders/5 }]", "submit after [{orders/5 }]",
		"submit before [{orders/2 }]", "submit after []")
	recorded.of("move")
	settle(t, store, claim, halfmsg.EventCommitted, time.Minute)
	want(t, "verdict", recorded.of("move"), "move before [{orders/5 committed}]", "move after [{orders/5 committed}]")
	server.CLI("SCRIPT", "FLUSH")
	store.Rollback(t.Context(), []halfmsg.Name{two[1].Name})
	want(t, "a forgotten script is sent again", recorded.of("move"), "move before [{orders/2 rollback}]",
		"move after [{orders/2 rollback}]",
		"move before [{orders/2 rollback}]", "move after [{orders/2 rollback}]")
}

// One request may carry calls for several shards. Each part is an event of its own, and one act is the act of all.
func TestTapReportsEachPartOfCall(t *testing.T) {
	t.Parallel()
	p, store, _ := behind(t, 4)
	var names []halfmsg.Name
	var messages []halfmsg.Message
	for i := range 20 {
		m := half(fmt.Sprint(i))
		messages, names = append(messages, m), append(names, m.Name)
	}
	store.Create(t.Context(), messages)
	var recorded notes
	cut := at("submit", wire.Reply, wire.Cut)
	p.On(func(e wire.Event) wire.Act {
		recorded.record(e)
		return cut(e)
	})
	for _, result := range store.Submit(t.Context(), names, time.Minute) {
		if result.Err == nil {
			t.Error("a reply came through")
		}
	}
	asked := strings.Join(recorded.of("submit"), "\n")
	if n := strings.Count(asked, "submit before"); n != 4 {
		t.Errorf("%d parts, want a part for each shard:\n%s", n, asked)
	}
	for _, name := range names {
		if !strings.Contains(asked, "orders/"+name.ID+" ") {
			t.Errorf("%s is not reported", name)
		}
	}
}

func settle(t *testing.T, store *redisstore.Store, claim *halfmsg.Claim, event halfmsg.Event, hold time.Duration) {
	t.Helper()
	result := store.Settle(t.Context(), []halfmsg.Settlement{
		{Name: claim.Name, Token: claim.Token, Event: event, Hold: hold},
	})
	if result[0].Err != nil {
		t.Fatalf("%v: %v", event, result[0].Err)
	}
}

// A request that is cut has had no effect, and a request whose reply is cut has had its effect.
func TestCutAtAScript(t *testing.T) {
	t.Parallel()
	p, store, server := behind(t, 1)
	for phase, stored := range map[wire.Phase]string{wire.Request: "0", wire.Reply: "1"} {
		m := half(phase.String())
		p.On(at("create", phase, wire.Cut))
		if result := store.Create(t.Context(), []halfmsg.Message{m}); result[0].Err == nil {
			t.Errorf("%v: no error", phase)
		}
		if got := server.CLI("EXISTS", "msghandler:{00}:orders:m:"+m.ID); got != stored {
			t.Errorf("%v: %s records, want %s", phase, got, stored)
		}
	}
}

func TestSilenceAtAScript(t *testing.T) {
	t.Parallel()
	p, store, _ := behind(t, 1)
	p.On(at("create", wire.Reply, wire.Silence))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if result := store.Create(ctx, []halfmsg.Message{half("1")}); result[0].Err == nil {
		t.Error("an answer came")
	}
	if result := store.Create(t.Context(), []halfmsg.Message{half("1")}); result[0].Err != nil {
		t.Errorf("on another connection: %v", result[0].Err)
	}
}

const queue = "inbox"

// channel is a broker with a queue, and a confirming channel through a proxy.
func channel(t *testing.T) (*servers.Vhost, *wire.Proxy, *amqp.Channel) {
	t.Helper()
	broker := servers.RabbitMQ(t)
	p := wire.RabbitMQ(t, wire.Host(t, broker.URL))
	ch := open(t, p.URL(broker.URL))
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	return broker, p, ch
}

func open(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	return ch
}

// publish sends a message to a queue of that name and waits for the answer.
func publish(t *testing.T, ch *amqp.Channel, to, id string) (acked bool, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	confirmation, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", to, true, false, amqp.Publishing{
		ContentType: "text/plain", Headers: amqp.Table{"msghandler-attempt": int64(1)}, DeliveryMode: amqp.Persistent,
		Priority: 1, CorrelationId: "c", Timestamp: time.Now(), MessageId: id, AppId: "orders", Body: []byte("body of " + id),
	})
	if err != nil {
		return false, err
	}
	return confirmation.WaitContext(ctx)
}

func TestTapReportsPublishesAndAnswers(t *testing.T) {
	t.Parallel()
	_, p, ch := channel(t)
	var recorded notes
	p.On(recorded.record)
	for _, id := range []string{"1", "2"} {
		if acked, err := publish(t, ch, queue, id); !acked || err != nil {
			t.Fatalf("acked %v, %v", acked, err)
		}
	}
	want(t, "publish", recorded.of("basic.publish", "basic.ack"), "basic.publish before [{orders/1 }]",
		"basic.ack after [{orders/1 }]",
		"basic.publish before [{orders/2 }]", "basic.ack after [{orders/2 }]")
	if acked, err := publish(t, ch, "unbound", "3"); !acked || err != nil {
		t.Fatalf("acked %v, %v", acked, err)
	}
	want(t, "unroutable", recorded.of("basic.return", "basic.ack"), "basic.return after [{orders/3 }]",
		"basic.ack after [{orders/3 }]")
}

// A publish that is cut never reached the broker; when the ack is cut, the publish did.
func TestCutAtAPublishing(t *testing.T) {
	t.Parallel()
	for name, phase := range map[string]wire.Phase{"basic.publish": wire.Request, "basic.ack": wire.Reply} {
		broker, p, ch := channel(t)
		p.On(at(name, phase, wire.Cut))
		if acked, _ := publish(t, ch, queue, "1"); acked {
			t.Errorf("%s: acked", name)
		}
		if got := taken(t, broker.URL); got != (phase == wire.Reply) {
			t.Errorf("cut at %s: in the queue %v", name, got)
		}
	}
}

// taken takes a message from the queue, if there is one, on a connection of its own.
func taken(t *testing.T, url string) bool {
	t.Helper()
	_, ok, err := open(t, url).Get(queue, true)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}
