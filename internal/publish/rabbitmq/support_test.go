package rabbitmq_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/publish/rabbitmq"
	"github.com/msghandler/msghandler/test/servers"
)

// publisher starts one that is ready and closed when the test ends.
func publisher(t testing.TB, config rabbitmq.Config) *rabbitmq.Publisher {
	t.Helper()
	config.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	p, err := rabbitmq.New(config.WithDefaults())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closePublisher(t, p, 15*time.Second) })
	ready(t, p)
	return p
}

func ready(t testing.TB, p *rabbitmq.Publisher) {
	t.Helper()
	servers.Eventually(t, 30*time.Second, "the publisher is ready", func() bool { return p.Ready() == nil })
}

// closePublisher closes it and fails the test when that takes longer than within.
func closePublisher(t testing.TB, p *rabbitmq.Publisher, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// testWriter writes logs into the test's own.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", b)
	return len(b), nil
}

// topology is a test's own connection, to declare and to look.
type topology struct {
	t       testing.TB
	channel *amqp.Channel
}

func declare(t testing.TB, url string) *topology {
	t.Helper()
	connection, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	channel, err := connection.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return &topology{t: t, channel: channel}
}

func (d *topology) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// exchange declares a direct exchange.
func (d *topology) exchange(name string) {
	d.t.Helper()
	d.must(d.channel.ExchangeDeclare(name, amqp.ExchangeDirect, true, false, false, false, nil))
}

// queue declares a queue of that name, bound to the exchange with the key.
func (d *topology) queue(name, exchange, key string, args amqp.Table) {
	d.t.Helper()
	_, err := d.channel.QueueDeclare(name, true, false, false, false, args)
	d.must(err)
	d.must(d.channel.QueueBind(name, key, exchange, false, nil))
}

// take consumes n messages and returns them; it fails when more or fewer come.
func (d *topology) take(queue string, n int) []amqp.Delivery {
	d.t.Helper()
	deliveries, err := d.channel.Consume(queue, "", true, false, false, false, nil)
	d.must(err)
	taken := make([]amqp.Delivery, 0, n)
	timeout := time.After(2 * time.Minute)
	for len(taken) < n {
		select {
		case delivery := <-deliveries:
			taken = append(taken, delivery)
		case <-timeout:
			d.t.Fatalf("%d messages in %s, want %d", len(taken), queue, n)
		}
	}
	return taken
}

// message is one for an exchange and a key, with a name made of its number.
func message(n int, exchange, key string) halfmsg.Publishing {
	return halfmsg.Publishing{
		Name:       halfmsg.Name{Producer: "orders", ID: fmt.Sprint(n)},
		Exchange:   exchange,
		RoutingKey: key,
		Body:       fmt.Appendf(nil, "body of %d", n),
		DueAt:      time.Unix(1_700_000_000, 0),
		Attempt:    1,
	}
}

// messages are n of them.
func messages(n int, exchange, key string) []halfmsg.Publishing {
	batch := make([]halfmsg.Publishing, n)
	for i := range batch {
		batch[i] = message(i, exchange, key)
	}
	return batch
}

// expect fails the test when a result has another outcome.
func expect(t testing.TB, results []halfmsg.PublishResult, want halfmsg.Outcome) {
	t.Helper()
	for i, r := range results {
		if r.Outcome != want {
			t.Fatalf("message %d of %d is %v (%v), want %v; all: %v", i, len(results), r.Outcome, r.Cause, want, count(results))
		}
		if (r.Cause == nil) != (want == halfmsg.Acked) {
			t.Fatalf("message %d is %v with the cause %v", i, r.Outcome, r.Cause)
		}
	}
}

// count counts outcomes.
func count(results []halfmsg.PublishResult) map[halfmsg.Outcome]int {
	counts := make(map[halfmsg.Outcome]int)
	for _, r := range results {
		counts[r.Outcome]++
	}
	return counts
}

func outcome(t testing.TB, p *rabbitmq.Publisher, m halfmsg.Publishing) halfmsg.PublishResult {
	t.Helper()
	return publish(t.Context(), p, []halfmsg.Publishing{m})[0]
}

// publish publishes a batch and returns all outcomes, in its order.
func publish(ctx context.Context, p *rabbitmq.Publisher, batch []halfmsg.Publishing) []halfmsg.PublishResult {
	outcomes := make([]halfmsg.PublishResult, len(batch))
	p.Publish(ctx, batch, func(places []int, results []halfmsg.PublishResult) {
		for n, i := range places {
			outcomes[i] = results[n]
		}
	})
	return outcomes
}

// user is a broker's user with limited permissions on one virtual host.
type user struct {
	t     testing.TB
	vhost *servers.Vhost
	name  string
	url   string
}

// limitedUser makes one that may write to the exchanges that match.
func limitedUser(t testing.TB, vhost *servers.Vhost, write string) *user {
	t.Helper()
	u := &user{t: t, vhost: vhost, name: "user-" + vhost.Name}
	u.url = strings.Replace(vhost.URL, "guest:guest", u.name+":its-secret", 1)
	u.call(http.MethodPut, "/api/users/"+u.name, map[string]string{"password": "its-secret", "tags": ""})
	t.Cleanup(func() { u.call(http.MethodDelete, "/api/users/"+u.name, nil) })
	u.allow(write)
	return u
}

// allow sets which exchanges it may write to.
func (u *user) allow(write string) {
	u.t.Helper()
	u.call(http.MethodPut, "/api/permissions/"+u.vhost.Name+"/"+u.name,
		map[string]string{"configure": "^$", "write": write, "read": "^$"})
}

// allowTopics sets which routing keys it may use with a topic exchange.
func (u *user) allowTopics(exchange, write string) {
	u.t.Helper()
	u.call(http.MethodPut, "/api/topic-permissions/"+u.vhost.Name+"/"+u.name,
		map[string]string{"exchange": exchange, "write": write, "read": "^$"})
}

func (u *user) call(method, path string, in any) {
	u.t.Helper()
	if err := u.vhost.Management().Call(method, path, in, nil); err != nil {
		u.t.Fatal(err)
	}
}
