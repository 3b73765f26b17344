package cli_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/cli"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// deadQueue is a queue of dead letters on a real broker.
type deadQueue struct {
	t       *testing.T
	url     string
	channel *amqp.Channel
}

func newDeadQueue(t *testing.T, ids ...string) *deadQueue {
	t.Helper()
	q := &deadQueue{t: t, url: servers.RabbitMQ(t).URL}
	conn, err := amqp.Dial(q.url)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	q.channel, err = conn.Channel()
	must.Succeed(t, err)
	must.Succeed(t, q.channel.Confirm(false))
	for _, queue := range []string{"payments", "payments.dead"} {
		if _, err := q.channel.QueueDeclare(queue, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	q.add(ids...)
	return q
}

func (q *deadQueue) add(ids ...string) {
	q.t.Helper()
	for _, id := range ids {
		publish := q.channel.PublishWithDeferredConfirmWithContext
		confirmation, err := publish(q.t.Context(), "", "payments.dead", true, false, amqp.Publishing{
			MessageId: id, AppId: "orders", Headers: amqp.Table{
				consumer.HeaderQueue: "payments", consumer.HeaderExchange: "", consumer.HeaderRoutingKey: "payments",
			},
		})
		must.Succeed(q.t, err)
		if ok, err := confirmation.WaitContext(q.t.Context()); !ok || err != nil {
			q.t.Fatal(ok, err)
		}
	}
}

// holds demands that so many letters are dead, and so many messages came back.
func (q *deadQueue) holds(dead, back int) {
	q.t.Helper()
	for queue, want := range map[string]int{"payments.dead": dead, "payments": back} {
		found := -1
		servers.Eventually(q.t, 10*time.Second, queue+" is counted", func() bool {
			state, err := q.channel.QueueDeclarePassive(queue, true, false, false, false, nil)
			must.Succeed(q.t, err)
			found = state.Messages
			return found == want
		})
	}
}

func (q *deadQueue) run(args ...string) ran {
	args = append([]string{"dlq", args[0], "--direct", "--queue=payments.dead"}, args[1:]...)
	return run([]string{"MSGHANDLER_AMQP_URL=" + q.url}, args...)
}

func TestDeadLetterChangesAskWithoutTerminal(t *testing.T) {
	t.Parallel()
	q := newDeadQueue(t, "1", "2", "", "")
	const noTerminal = "there is no terminal to ask on; add --yes when you are sure, or --dry-run to count"
	q.run("replay", "--all").want(t, 2, "", noTerminal)
	q.run("discard", "orders/").want(t, 2, "", noTerminal)
	q.run("replay", "orders/").want(t, 2, "", noTerminal)
	q.holds(4, 0)
	q.run("discard", "orders/", "--yes", "--reason=a test of ours").want(t, 0, "discarded 2\n",
		`level=INFO msg="dead letters discarded" count=2 queue=payments.dead by=`)
	q.run("discard", "orders/1").want(t, 0, "discarded 1\n", "")
	q.run("replay", "--all", "-y", "--reason=fixed", "--output=json").
		want(t, 0, `"replayed": 1`, "reason=fixed letters=all\n")
	q.holds(0, 1)
}

func TestDeadLetterDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	q := newDeadQueue(t, "1", "2", "3")
	q.run("replay", "--all", "--dry-run").want(t, 0, "3 would be replayed\n", "")
	q.run("replay", "orders/2", "-n", "--output=json").want(t, 0, `"dry_run": true`, "")
	q.run("discard", "orders/2", "orders/1", "--dry-run").want(t, 0, "2 would be discarded\n", "")
	q.run("discard", "orders/2", "orders/9", "--dry-run").
		want(t, 3, "1 would be discarded\n", "1 of the 2 named are not in payments.dead")
	q.holds(3, 0)
}

func TestDeadLetterReplayAsksOnTerminal(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct {
		status     int
		out        string
		dead, back int
	}{
		"y": {0, "replayed 2\n", 1, 2}, // and not the letter that came after the count
		"n": {1, "", 3, 0},
	} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			q := newDeadQueue(t, "1", "2")
			keyboard, program := terminal(t)
			var out, errs servers.Log
			ended := make(chan int, 1)
			go func() {
				ended <- cli.Run(t.Context(), commandline.Process{
					Args: []string{"dlq", "replay", "--all", "--direct", "--queue=payments.dead", "--amqp.url=" + q.url},
					In:   program, Out: &out, Err: &errs,
				})
			}()
			const question = "Replay 2 dead letters of payments.dead? [y/N] "
			servers.Eventually(t, 20*time.Second, "the question", func() bool {
				return strings.Contains(errs.String(), question)
			})
			q.add("3")
			if _, err := keyboard.WriteString(answer + "\n"); err != nil {
				t.Fatal(err)
			}
			ran{<-ended, out.String(), errs.String()}.want(t, want.status, want.out, question)
			q.holds(want.dead, want.back)
		})
	}
}

// Letters that arrive between question and answer stay unchanged, also without an id.
func TestDeadLetterChangeKeepsAgreedCount(t *testing.T) {
	t.Parallel()
	for verb, want := range map[string]struct {
		question, out string
		back          int
	}{
		"replay":  {"Replay 2 dead letters of payments.dead? [y/N] ", "replayed 2\n", 2},
		"discard": {"Discard 2 dead letters of payments.dead? [y/N] ", "discarded 2\n", 0},
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			q := newDeadQueue(t, "1", "", "")
			keyboard, program := terminal(t)
			var out, errs servers.Log
			ended := make(chan int, 1)
			go func() {
				ended <- cli.Run(t.Context(), commandline.Process{
					Args: []string{"dlq", verb, "orders/", "--direct", "--queue=payments.dead", "--amqp.url=" + q.url},
					In:   program, Out: &out, Err: &errs,
				})
			}()
			servers.Eventually(t, 20*time.Second, "the question", func() bool {
				return strings.Contains(errs.String(), want.question)
			})
			q.add("", "", "")
			if _, err := keyboard.WriteString("y\n"); err != nil {
				t.Fatal(err)
			}
			ran{<-ended, out.String(), errs.String()}.want(t, 0, want.out, want.question)
			q.holds(1+3, want.back)
		})
	}
}

func TestEmptyDeadLetterReplayAsksNothing(t *testing.T) {
	t.Parallel()
	q := newDeadQueue(t)
	_, program := terminal(t)
	var out, errs bytes.Buffer
	status := cli.Run(t.Context(), commandline.Process{
		Args: []string{"dlq", "replay", "--all", "--direct", "--queue=payments.dead", "--amqp.url=" + q.url},
		In:   program, Out: &out, Err: &errs,
	})
	ran{status, out.String(), errs.String()}.want(t, 0, "replayed 0\n", "")
}
