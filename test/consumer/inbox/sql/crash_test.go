package sql_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	"github.com/msghandler/msghandler/test/servers"
)

// kills is how often a consumer is killed on each database: at a step, and as often again at any moment.
var kills = flag.Int("kills", 6, "how often a consumer is killed on each database, at its steps and at any moment each")

// child, in the environment, makes this test binary a consumer's process: DIALECT DRIVER URL STEP DSN. STEP is one of
// the steps and, after a dot, the number of the order at which the process waits for the kill.
const child = "TEST_SQL_INBOX_CHILD"

func TestMain(m *testing.M) {
	if text := os.Getenv(child); text != "" {
		if err := consume(strings.SplitN(text, " ", 5)); err != nil {
			fmt.Println(err)
		}
		os.Exit(1) // its end is the kill
	}
	goleak.VerifyTestMain(servers.Stopping(m))
}

// The steps at which a consumer is killed. At each the child prints a line, and does not answer the broker.
const (
	stepTaken     = "taken"
	stepEffect    = "effect"
	stepCommitted = "committed"
	// stepNone: the child handles every message.
	stepNone = "none"
)

const queue = "payments"

// consume is a consumer's process. It prints "STEP ID" at the step at which it waits for the kill, and "done ID" or
// "duplicate ID" otherwise.
func consume(args []string) error {
	number, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	d, url, step := database{sqlinbox.Dialect(number), args[1], args[4]}, args[2], args[3]
	db, err := sql.Open(d.driver, d.dsn)
	if err != nil {
		return err
	}
	inbox, err := sqlinbox.New(sqlinbox.Config{DB: db, Dialect: d.dialect, Consumer: "payments"})
	if err != nil {
		return err
	}
	here := func(now string, m *consumer.Message) {
		if now+"."+m.ID == step {
			fmt.Println(now, m.ID)
			select {}
		}
	}
	handler := inbox.Handler(func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
		here(stepTaken, m)
		if err := d.pay(ctx, tx, m); err != nil {
			return err
		}
		here(stepEffect, m)
		return nil
	})
	c, err := rabbitmqconsumer.New(rabbitmqconsumer.Config{
		URL: url, Queue: queue, Declare: &rabbitmqconsumer.Declare{Exchange: "orders"}, Logger: slog.New(slog.DiscardHandler),
		Retry: []time.Duration{20 * time.Millisecond},
	})
	if err != nil {
		return err
	}
	return c.Run(context.Background(), consumer.HandlerFunc(func(ctx context.Context, m *consumer.Message) error {
		err := handler.Handle(ctx, m)
		switch {
		case err == nil:
			here(stepCommitted, m)
			fmt.Println("done", m.ID)
		case errors.Is(err, consumer.ErrDuplicate):
			fmt.Println("duplicate", m.ID)
		}
		return err
	}))
}

// process is a consumer's process.
type process struct {
	cmd  *exec.Cmd
	said *bufio.Scanner
}

func startProcess(t *testing.T, d database, url, step string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s %s %s %s", child, d.dialect, d.driver, url, step, d.dsn))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd, bufio.NewScanner(out)}
	t.Cleanup(p.kill)
	return p
}

// line waits for the next line of the process.
func (p *process) line(t *testing.T) string {
	t.Helper()
	if !p.said.Scan() {
		t.Fatalf("the consumer ended by itself: %v", p.said.Err())
	}
	return p.said.Text()
}

func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Signal(syscall.SIGKILL)
		_ = p.cmd.Wait()
	}
}

// broker is a channel to publish orders on, with the queue declared.
func broker(t *testing.T) (vhost *servers.Vhost, publish func(ids ...string)) {
	t.Helper()
	vhost = servers.RabbitMQ(t)
	conn, err := amqp.Dial(vhost.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		ch.ExchangeDeclare("orders", "topic", true, false, false, false, nil),
		func() error {
			_, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
			return err
		}(),
		ch.QueueBind(queue, "#", "orders", false, nil),
	); err != nil {
		t.Fatal(err)
	}
	return vhost, func(ids ...string) {
		t.Helper()
		for _, id := range ids {
			err := ch.PublishWithContext(t.Context(), "orders", "order.paid", true, false, amqp.Publishing{
				MessageId: id, AppId: "orders", DeliveryMode: amqp.Persistent,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestConsumerKilledAnywhereLeavesOneEffect(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		d.inbox(t, db, nil)
		vhost, publish := broker(t)
		steps := []string{stepTaken, stepEffect, stepCommitted}
		paid := map[string]bool{}
		for n := range *kills {
			step, id := steps[n%len(steps)], strconv.Itoa(n)
			publish(id)
			p := startProcess(t, d, vhost.URL, step+"."+id)
			// Before its own order the process may get the orders of the killed processes before.
			for said := p.line(t); said != step+" "+id; said = p.line(t) {
				record(t, paid, said)
			}
			p.kill()
			paid[id] = step == stepCommitted
		}
		last := startProcess(t, d, vhost.URL, stepNone)
		var hearing sync.WaitGroup
		hearing.Go(func() {
			for last.said.Scan() {
				record(t, paid, last.said.Text())
			}
		})
		servers.Eventually(t, time.Minute, "an empty queue", func() bool { return left(t, vhost) == 0 })
		last.kill()
		hearing.Wait()
		onceEach(t, db, *kills)
		t.Logf("killed %d times, in turn before the effect, after it and after the commit", *kills)
	})
}

// record takes a line of a consumer: "done" for an order that was not paid before, and "duplicate" otherwise.
func record(t *testing.T, paid map[string]bool, said string) {
	t.Helper()
	what, id, _ := strings.Cut(said, " ")
	was, known := paid[id]
	if !known || was != (what == "duplicate") {
		t.Errorf("a consumer says %q of an order that is known: %v, and paid: %v", said, known, was)
	}
	paid[id] = true
}

// onceEach requires one effect for each order.
func onceEach(t *testing.T, db *sql.DB, orders int) {
	t.Helper()
	var distinct int
	if err := db.QueryRowContext(t.Context(), `SELECT COUNT(DISTINCT id) FROM payments`).Scan(&distinct); err != nil {
		t.Fatal(err)
	}
	if n := payments(t, db); n != orders || distinct != orders {
		t.Errorf("%d orders had %d effects, %d distinct", orders, n, distinct)
	}
}

// A consumer is killed again and again at any moment while orders flow.
func TestRandomlyKilledConsumerRepeatsNoEffect(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		d.inbox(t, db, nil)
		vhost, publish := broker(t)
		orders := 30 * *kills
		for n := range orders {
			publish(strconv.Itoa(n))
		}
		for n := range *kills {
			p := startProcess(t, d, vhost.URL, stepNone)
			for range 7 + 3*(n%6) {
				p.line(t)
			}
			p.kill()
		}
		last := startProcess(t, d, vhost.URL, stepNone)
		drained := make(chan struct{})
		go func() { // drains the output
			defer close(drained)
			for last.said.Scan() {
				continue
			}
		}()
		servers.Eventually(t, time.Minute, "all orders paid", func() bool { return payments(t, db) >= orders })
		servers.Eventually(t, time.Minute, "an empty queue", func() bool { return left(t, vhost) == 0 })
		last.kill()
		<-drained
		onceEach(t, db, orders)
		t.Logf("killed %d times at any moment while %d orders flowed", *kills, orders)
	})
}

func left(t *testing.T, vhost *servers.Vhost) int {
	t.Helper()
	var q struct {
		Messages *int `json:"messages"`
	}
	if err := vhost.Management().Call("GET", "/api/queues/"+vhost.Name+"/"+queue, nil, &q); err != nil {
		t.Fatal(err)
	}
	if q.Messages == nil {
		return -1
	}
	return *q.Messages
}
