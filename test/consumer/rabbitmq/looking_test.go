package rabbitmq_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	rabbit "github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/servers"
)

// looks is more than the delivery limit that RabbitMQ 4 gives to a quorum queue by default, for each letter.
const looks = 50

// deadLetterQueues lists dead-letter queues that a client may find, by their creator.
var deadLetterQueues = map[string]amqp.Table{
	"Declare":                    nil,
	"Declare, before RabbitMQ 4": {amqp.QueueTypeArg: amqp.QueueTypeQuorum},
	"another program, with a limit of 5": {
		amqp.QueueTypeArg: amqp.QueueTypeQuorum, "x-delivery-limit": int64(5),
	},
	"another program, with a limit of 1 and other arguments": {
		amqp.QueueTypeArg: amqp.QueueTypeQuorum, "x-max-length": int64(100), "x-overflow": "reject-publish",
		"x-delivery-limit": int64(1),
	},
	"another program, as a classic queue": {amqp.QueueTypeArg: amqp.QueueTypeClassic},
}

func TestLookingLosesNoLetter(t *testing.T) {
	t.Parallel()
	for by, arguments := range deadLetterQueues {
		t.Run("declared by "+by, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.deadLetterQueue(arguments)
			b.putLetters()
			dead := b.deadLetters()
			want := b.letters(dead)
			for n := range looks {
				if _, err := dead.List(t.Context(), 1+n%5); err != nil {
					t.Fatal(err)
				}
				if _, err := dead.Show(t.Context(), fmt.Sprintf("orders/%d", 1+n%4)); err != nil {
					t.Fatalf("look %d: %v", n, err)
				}
			}
			if got := b.letters(dead); !slices.Equal(got, want) {
				t.Errorf("after %d looks there are\n%q, before there were\n%q", looks, got, want)
			}
		})
	}
}

// deadLetterQueue declares payments.dead: with nil as Declare does.
func (b *bench) deadLetterQueue(arguments amqp.Table) {
	b.Helper()
	if arguments == nil {
		stop := b.start(b.config(), func(context.Context, *consumer.Message) error { return nil })
		if err := stop(); err != nil {
			b.Fatal(err)
		}
		return
	}
	if _, err := b.ch.QueueDeclare("payments.dead", true, false, false, false, arguments); err != nil {
		b.Fatal(err)
	}
}

// putLetters publishes a letter of a consumer, two letters of other programs, and a letter of the broker.
func (b *bench) putLetters() {
	b.Helper()
	death := amqp.Table{
		"reason": "rejected", "queue": "payments", "exchange": "orders", "routing-keys": []any{"order.paid"},
		"count": int64(1),
		"time":  time.Unix(1700000000, 0),
	}
	for id, headers := range []amqp.Table{
		{
			consumer.HeaderQueue: "payments", consumer.HeaderExchange: "orders", consumer.HeaderRoutingKey: "order.paid",
			consumer.HeaderDeadReason: "not JSON", consumer.HeaderRetries: int64(3),
		},
		nil,
		{"CC": []any{"elsewhere"}, "colour": "red"},
		{"x-death": []any{death}},
	} {
		err := b.ch.PublishWithContext(b.Context(), "", "payments.dead", true, false, amqp.Publishing{
			MessageId: fmt.Sprint(id + 1), AppId: "orders", ContentType: "text/plain", Body: []byte(fmt.Sprint("body ", id)),
			DeliveryMode: amqp.Persistent, Headers: headers, Type: "order",
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	servers.Eventually(b, patience, "four letters", func() bool { return b.depth("payments.dead") == 4 })
}

// letters returns all known fields of the dead letters, sorted.
func (b *bench) letters(dead *consumer.DeadLetters) []string {
	b.Helper()
	found, err := dead.List(b.Context(), 100)
	if err != nil {
		b.Fatal(err)
	}
	var all []string
	for _, l := range found {
		all = append(all, fmt.Sprint(l.Key(), l.Queue, l.Exchange, l.RoutingKey, l.Reason, l.Retries, l.Attempt,
			l.ContentType,
			l.Headers, string(l.Body)))
	}
	slices.Sort(all)
	return all
}

// Where the broker lets a client say so, a look is no failed delivery.
func TestALookIsNoFailedDelivery(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetterQueue(nil)
	b.putLetters()
	dead := b.deadLetters()
	const times = 5
	for range times {
		b.letters(dead)
	}
	for range 4 {
		d := b.get("payments.dead")
		// If a look counts, each second look replaces the letter by a copy.
		if count, _ := d.Headers["x-delivery-count"].(int64); !d.Redelivered || count != times%2*b.nackCounts() {
			t.Errorf("letter %s: redelivered %v, headers %v", d.MessageId, d.Redelivered, d.Headers)
		}
	}
}

// A policy sets a delivery limit, which no client can see.
func TestLookingLosesNoLetterUnderPolicy(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 3, 7} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.deadLetterQueue(nil)
			management := b.vhost.Management()
			path := "/api/policies/" + url.PathEscape(management.Vhost) + "/limit"
			policy := map[string]any{
				"pattern": ".*", "definition": map[string]any{"delivery-limit": limit}, "apply-to": "queues",
			}
			if err := management.Call(http.MethodPut, path, policy, nil); err != nil {
				t.Fatal(err)
			}
			b.putLetters()
			dead := b.deadLetters()
			want := b.letters(dead)
			for range 20 {
				if got := b.letters(dead); !slices.Equal(got, want) {
					t.Fatalf("there are\n%q, before there were\n%q", got, want)
				}
			}
		})
	}
}

// A user with read permission only cannot replace a letter by a copy. If looks count, each look is refused before
// taking a letter.
func TestLookingWithoutWritePermissionIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetterQueue(deadLetterQueues["another program, with a limit of 5"])
	b.putLetters()
	want := b.letters(b.deadLetters())
	reader, err := rabbit.NewDeadLetters(b.reader(), nil, "payments.dead")
	if err != nil {
		t.Fatal(err)
	}
	for range 12 {
		letters, err := reader.List(t.Context(), 100)
		switch {
		case b.nackCounts() == 0 && (err != nil || len(letters) != len(want)):
			t.Fatalf("where looks do not count: %d letters, %v", len(letters), err)
		case b.nackCounts() == 1 && (err == nil || !strings.Contains(err.Error(), "write permission")):
			t.Fatalf("where looks count: %v", err)
		}
	}
	if got := b.letters(b.deadLetters()); !slices.Equal(got, want) {
		t.Errorf("there are\n%q, before there were\n%q", got, want)
	}
}

// reader is the URL of a user who may read all queues of the virtual host and write nothing.
func (b *bench) reader() string { b.Helper(); return b.user("", "", ".*") }

// user is the URL of a user with permissions in the virtual host.
func (b *bench) user(configure, write, read string) string {
	b.Helper()
	management := b.vhost.Management()
	name := "limited-" + management.Vhost
	put := func(path string, in map[string]any) {
		servers.Eventually(b, patience, path, func() bool { return management.Call(http.MethodPut, path, in, nil) == nil })
	}
	// The broker refuses permissions of a user that it does not have.
	put("/api/users/"+url.PathEscape(name), map[string]any{"password": "read", "tags": ""})
	put("/api/permissions/"+url.PathEscape(management.Vhost)+"/"+url.PathEscape(name), map[string]any{
		"configure": configure, "write": write, "read": read,
	})
	b.Cleanup(func() { _ = management.Call(http.MethodDelete, "/api/users/"+url.PathEscape(name), nil, nil) })
	at, err := url.Parse(b.vhost.URL)
	if err != nil {
		b.Fatal(err)
	}
	at.User = url.UserPassword(name, "read")
	return at.String()
}

// Another consumer has the queue for itself, and takes one letter. A look says so, and does not wait for ever.
func TestLookAtAHeldQueueEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, err := b.ch.QueueDeclare("held", true, false, false, false, amqp.Table{
		amqp.QueueTypeArg: amqp.QueueTypeClassic, "x-single-active-consumer": true,
	}); err != nil {
		t.Fatal(err)
	}
	err := b.ch.Qos(1, 0, false)
	if err == nil {
		_, err = b.ch.Consume("held", "", false, false, false, false, nil)
	}
	for range 3 {
		if err == nil {
			err = b.ch.PublishWithContext(t.Context(), "", "held", true, false, amqp.Publishing{})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, patience, "one letter is held", func() bool { return b.depth("held") == 2 })
	dead, err := rabbit.NewDeadLetters(b.vhost.URL, nil, "held")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := dead.List(ctx, 10); err == nil || !strings.Contains(err.Error(), "x-single-active-consumer") {
		t.Errorf("the look at a held queue: %v", err)
	}
}
