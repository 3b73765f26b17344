package cli_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/fakekafka"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/servers/natsserver"
)

// The error says which flag or key is wrong, and prints no password.
func TestUnclearBrokersAreWrongUsage(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"--queue=q --broker=events":           "the configuration has no brokers.events.url; set the key, or name one",
		"--queue=q --url=redis://geheim@h":    "is not a URL of a broker; the schemes are amqp, amqps, kafka, nats, tls",
		"--queue=q --url=nats://u:geheim@h:p": "--url: natsconsumer.NewDeadLetters: URL cannot be read",
		"--queue=q.> --url=nats://h":          "cannot be the name of a stream",
		"--queue=a/b --url=kafka://h":         "is no name of a topic",
		"--queue=q --url=nats://h --broker=a": "can't be used together",
	} {
		got := run(nil, append([]string{"dlq", "list", "--direct"}, strings.Fields(typed)...)...)
		got.want(t, 2, "", want)
		if strings.Contains(got.err, "geheim") {
			t.Errorf("a password came back: %s", got.err)
		}
	}
}

// Nothing listens on port 1 of this machine.
func TestUnreachableBrokerHasRemedy(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"list", "count"} {
		run(nil, "dlq", command, "--direct", "--queue=q", "--url=amqp://127.0.0.1:1").want(t, 1, "",
			"cannot reach the broker: is it running? Name another with --url or --broker")
	}
}

// A flag that names a broker means nothing to a coordinator.
func TestBrokerNeedsDirect(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--url=nats://h", "--amqp.url=amqp://h", "--broker=events"} {
		run(nil, "dlq", "list", "--queue=q", flag).want(t, 2, "", "add --direct to work on the broker itself")
	}
}

// A coordinator without dead_letters says what to configure.
func TestUnconfiguredDeadLettersHaveRemedy(t *testing.T) {
	t.Parallel()
	addr, _ := serve(t)
	dlq := func(command string, args ...string) ran {
		return run(nil, append([]string{"dlq", command, "--server=" + addr, "--queue=payments"}, args...)...)
	}
	for _, got := range []ran{
		dlq("list"), dlq("count"), dlq("show", "orders/1"), dlq("replay", "orders/1"), dlq("discard", "orders/1"),
	} {
		got.want(t, 1, "", "set dead_letters.NAME.queue and restart the coordinators, or use msghandler dlq --direct")
	}
}

func TestDeadLettersOnNATS(t *testing.T) {
	t.Parallel()
	url := servers.NATS(t).URL
	js := natsserver.Stream(t, url, "ORDERS", "orders.>")
	natsserver.Stream(t, url, "DEAD", "DEAD.>")
	lettersChange(t, url, "DEAD", func(id string) {
		m := nats.NewMsg("DEAD.orders.paid")
		m.Data = []byte("order " + id)
		for name, value := range map[string]string{
			"msghandler-id": id, "msghandler-producer": "orders", consumer.HeaderQueue: "payments",
			consumer.HeaderExchange: "ORDERS", consumer.HeaderRoutingKey: "orders.paid", consumer.HeaderRetries: "4",
			consumer.HeaderDeadReason: "not JSON",
		} {
			m.Header.Set(name, value)
		}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	})
	run(nil, "dlq", "list", "--direct", "--queue=NONE", "--url="+url).
		want(t, 1, "", "stream not found; name the DeadLetterStream")
	stream, err := js.Stream(t.Context(), "ORDERS")
	if err != nil || stream.CachedInfo().State.Msgs != 6 {
		t.Errorf("%+v came back, %v", stream, err)
	}
}

func TestDeadLettersOnKafka(t *testing.T) {
	t.Parallel()
	k := fakekafka.Start(t, nil)
	k.Topic("orders", nil)
	k.Topic("payments.dead", nil)
	lettersChange(t, k.URL("", ""), "payments.dead", func(id string) {
		n, _ := strconv.Atoi(id)
		record := &kgo.Record{
			Topic: "payments.dead", Value: []byte("order " + id), Timestamp: time.UnixMilli(1_700_000_000_000 + int64(n)),
		}
		for name, value := range map[string]string{
			"msghandler-id": id, "msghandler-producer": "orders", consumer.HeaderQueue: "payments",
			consumer.HeaderExchange: "orders", consumer.HeaderRetries: "4", consumer.HeaderDeadReason: "not JSON",
		} {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		must.Succeed(t, k.Admin.ProduceSync(t.Context(), record).FirstErr())
	})
	run(nil, "dlq", "list", "--direct", "--queue=none", "--url="+k.URL("", "")).
		want(t, 1, "", "name the dead-letter topic")
	if back := strings.Fields(k.Kcat("", "-C", "-t", "orders", "-e", "-q", "-f", "%k%o\n")); len(back) != 6 {
		t.Errorf("%v came back", back)
	}
}

// lettersChange runs the commands on the letters orders/0 to orders/3 of any broker, directly and through a
// coordinator: three are replayed, one is discarded, each time.
func lettersChange(t *testing.T, url, queue string, put func(id string)) {
	t.Helper()
	broker := "MSGHANDLER_BROKERS_EVENTS_URL=" + url
	addr, _ := serveWith(t, []string{
		broker, "MSGHANDLER_DEAD_LETTERS_GRAVE_QUEUE=" + queue, "MSGHANDLER_DEAD_LETTERS_GRAVE_BROKER=events",
	})
	for _, way := range []struct {
		env, flags []string
		// record is what the command itself tells of a change with a reason.
		record string
	}{
		{
			[]string{broker},
			[]string{"--direct", "--broker=events", "--queue=" + queue},
			`msg="dead letters discarded" count=1`,
		},
		{[]string{"MSGHANDLER_SERVER=" + addr}, []string{"--queue=grave"}, ""},
	} {
		for id := range 4 {
			put(strconv.Itoa(id))
		}
		dlq := func(args ...string) ran {
			return run(way.env, slices.Concat([]string{"dlq", args[0]}, way.flags, args[1:])...)
		}
		dlq("list").want(t, 0, "   4         ", "")
		dlq("list", "--limit=3").
			want(t, 0, "orders/2 ", "this is the end of --limit=3, and there may be more; raise it\n")
		dlq("list", "--output=json", "--limit=1").want(t, 0, `"reason": "not JSON"`, "")
		dlq("count").want(t, 0, "4 ", "")
		dlq("show", "orders/1").want(t, 0, "order 1\n", "")
		dlq("show", "orders/9").want(t, 3, "", "has no dead letter orders/9")
		dlq("replay", "--all").want(t, 2, "", "add --yes")
		dlq("replay", "--all", "--dry-run").want(t, 0, "4 would be replayed\n", "")
		dlq("replay", "orders/0", "orders/9").want(t, 3, "replayed 1\n", "1 of the 2")
		dlq("discard", "orders/1", "--reason=a test").want(t, 0, "discarded 1\n", way.record)
		dlq("replay", "--all", "--yes").want(t, 0, "replayed 2\n", "")
		dlq("list").want(t, 0, "no dead letters\n", "")
	}
	run([]string{"MSGHANDLER_SERVER=" + addr}, "dlq", "list", "--queue=elsewhere").
		want(t, 3, "", "no dead letters named elsewhere, but grave: name one of them")
	servers.Eventually(t, 20*time.Second, "the discard is in the audit", func() bool {
		got := run([]string{"MSGHANDLER_SERVER=" + addr}, "audit", "--action=discard_dead_letters")
		return strings.Contains(got.out, "orders/1") && strings.Contains(got.out, "a test")
	})
}
