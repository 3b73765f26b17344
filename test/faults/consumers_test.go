package faults

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconsumer"
	"github.com/msghandler/msghandler/broker/nats/natsconsumer"
	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/redis/redisdedup"
	"github.com/msghandler/msghandler/test/servers"
)

// Faults of consumers.
var consumerRows = []row{
	{
		name: "F30", copies: true, world: options{consume: consumeInProcesses(withRedis)}, fault: nothing,
		judge: oneEffectEach,
	},
	{
		name: "F30_sql", copies: true, world: options{consume: consumeInProcesses(withSQL)}, fault: nothing,
		judge: diedOnBothSides,
	},
}

const withRedis, withSQL = false, true

// The consumers' business database, a Redis; with SQL the Redis holds only the keys of the test. A consumer kills
// itself, as with kill -9, while a death is left at one of its two points.
const (
	deathsBefore = "deaths:before" // its effect
	deathsAfter  = "deaths:after"  // its effect, and before the acknowledgement
	inbox        = "inbox"         // the messages that had their effect
	effects      = "effects"       // how many effects each message had
	doubled      = "doubled"       // how many copies found that the effect was there
	notes        = "notes"         // the received copies, as JSON
	deaths       = 8
)

// act is the transaction of a consumer: the inbox row and the effect, or neither.
var act = goredis.NewScript(`
if redis.call('SADD', KEYS[1], ARGV[1]) == 1 then redis.call('HINCRBY', KEYS[2], ARGV[1], 1)
else redis.call('INCR', KEYS[3]) end`)

// note is a copy, reported by a consumer process.
type note struct {
	Key  string
	Copy Copy
}

// consumeInProcesses starts two consumers as processes, again and again as they die, until the test ends.
func consumeInProcesses(sql bool) func(w *world) {
	return func(w *world) {
		orders := mortalConsumer{Broker: w.broker.URL, Redis: servers.Redis(w.t).Addr}
		if w.stream != nil {
			orders.Broker = w.stream.url()
			orders.Noted = w.stream.watch(w)
		}
		if sql {
			orders.Database = &w.keepEffects().database
		}
		consumeAndDie(w, orders)
	}
}

func consumeAndDie(w *world, orders mortalConsumer) {
	client := goredis.NewClient(&goredis.Options{Addr: orders.Redis, ContextTimeoutEnabled: true})
	w.business = client
	for _, point := range []string{deathsBefore, deathsAfter} {
		if err := client.Set(w.t.Context(), point, deaths, 0).Err(); err != nil {
			w.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	w.consumed(queue, 2)
	for n := range 2 {
		running.Go(func() {
			for born := 0; ctx.Err() == nil; born++ {
				own := orders
				own.Seed = *seed + uint64(100*born+n)
				own.Name = fmt.Sprintf("consumer-%d-%d", n, born)
				err := consumeInProcess(ctx, w, own)
				if err != nil && ctx.Err() == nil {
					w.t.Errorf("a consumer: %v", err)
					return
				}
				if w.stream != nil {
					w.stream.forget(w, own.Name)
				}
			}
		})
	}
	running.Go(func() { takeNotes(ctx, w) })
	w.t.Cleanup(func() { cancel(); running.Wait(); client.Close() })
}

// consumeInProcess runs one consumer until the consumer kills itself or the context ends. Any other end is an error.
func consumeInProcess(ctx context.Context, w *world, orders mortalConsumer) error {
	text, err := json.Marshal(orders)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, cmp.Or(w.options.consumers, os.Args[0]))
	cmd.Env = []string{consumerVariable + "=" + string(text)}
	if _, err := cmd.StdinPipe(); err != nil {
		return err
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = cmd.Wait() // its state says more
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("the consumer ended with %v\n%s", cmd.ProcessState, &out)
	}
	w.ledger.Fault("a consumer died")
	return nil
}

// takeNotes enters the consumers' notes in the ledger.
func takeNotes(ctx context.Context, w *world) {
	for ctx.Err() == nil {
		got, err := w.business.BLPop(ctx, time.Second, notes).Result()
		if err != nil { // there was none, or the test ends
			continue
		}
		var n note
		if err := json.Unmarshal([]byte(got[1]), &n); err != nil {
			w.t.Errorf("a consumer's note: %v", err)
			continue
		}
		w.got(n.Key, n.Copy)
	}
}

// oneEffectEach demands that every committed message had one effect and no other message had any, where the checker
// cannot see effects, and that consumers died at both points.
func oneEffectEach(t *testing.T, w *world, l *load, end End) {
	t.Helper()
	committed := w.ledger.Committed()
	var had map[string]string
	servers.Eventually(t, patience, "every committed message has had its effect", func() bool {
		had = w.business.HGetAll(t.Context(), effects).Val()
		return len(had) >= len(committed)
	})
	for key, times := range had {
		if !committed[key] || times != "1" {
			t.Errorf("%s had its effect %s times; committed: %t", key, times, committed[key])
		}
	}
	diedOnBothSides(t, w, l, end)
}

// diedOnBothSides demands that consumers died at both points, and that copies came after the effect.
func diedOnBothSides(t *testing.T, w *world, _ *load, _ End) {
	t.Helper()
	count := func(key string) int {
		n, err := w.business.Get(t.Context(), key).Int()
		if err != nil && !errors.Is(err, goredis.Nil) {
			t.Fatal(err)
		}
		return n
	}
	before, after := deaths-max(0, count(deathsBefore)), deaths-max(0, count(deathsAfter))
	dropped := count(doubled)
	t.Logf("consumers died %d times before an effect and %d times after one; %d copies found it there", before, after,
		dropped)
	if before == 0 || after == 0 || dropped == 0 {
		t.Error("the row proves nothing: no process died at one of the points, or no copy came after the effect")
	}
}

// consumerVariable makes this program a consumer. The variable holds a mortalConsumer.
const consumerVariable = "FAULTS_CONSUMER"

// mortalConsumer is a consumer in a process of its own: where it consumes, its business database (Redis where there
// is no other), and the source of its random numbers.
type mortalConsumer struct {
	Broker, Redis string
	Database      *database
	Seed          uint64
	// Name tells the consumers of a broker apart. Noted says that the copies are noted elsewhere.
	Name  string
	Noted bool
}

// open makes the consumer of the SDK for the kind of broker.
func (m mortalConsumer) open() (run func(context.Context, consumer.Handler) error, err error) {
	retry := []time.Duration{time.Second}
	switch kind, _, _ := strings.Cut(m.Broker, ":"); kind {
	case "nats":
		c, err := natsconsumer.New(natsconsumer.Config{
			URL: m.Broker, Stream: exchange, Name: natsInbox, AckWait: 2 * time.Second, Retry: retry,
		})
		return c.Run, err
	case "kafka":
		c, err := kafkaconsumer.New(kafkaconsumer.Config{
			URL: m.Broker, Group: kafkaGroup(exchange), Name: m.Name, Topics: []string{exchange}, Retry: retry,
		})
		return c.Run, err
	default:
		c, err := rabbitmqconsumer.New(rabbitmqconsumer.Config{
			URL: m.Broker, Queue: queue, Declare: &rabbitmqconsumer.Declare{Exchange: exchange}, Retry: retry,
		})
		return c.Run, err
	}
}

// beConsumer consumes until a kill, most often its own.
func beConsumer(orders string) error {
	var m mortalConsumer
	if err := json.Unmarshal([]byte(orders), &m); err != nil {
		return err
	}
	business := goredis.NewClient(&goredis.Options{Addr: m.Redis, ContextTimeoutEnabled: true, MaxRetries: -1})
	defer business.Close()
	d := doomed{business: business, random: rand.New(rand.NewPCG(m.Seed, m.Seed))}
	handler, err := d.handler(m.Database)
	if err != nil {
		return err
	}
	run, err := m.open()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop() // the process that started this consumer is gone
	}()
	return run(ctx, d.noting(m.Noted, handler))
}

// doomed is a consumer's handler that dies now and then. The handler has one message at a time.
type doomed struct {
	business *goredis.Client
	random   *rand.Rand
}

// handler lets each message have its effect once, by an inbox in the database, or in Redis behind deduplication.
func (d doomed) handler(in *database) (consumer.Handler, error) {
	if in == nil {
		handled, err := redisdedup.New(redisdedup.Config{Client: d.business, Consumer: "faults", Lease: time.Second})
		return consumer.Chain(consumer.HandlerFunc(d.handle), consumer.Deduplicate(handled, quiet())), err
	}
	kept, err := openEffects(context.Background(), *in)
	if err != nil {
		return nil, err
	}
	once := kept.handler(func(ctx context.Context) { d.mayDie(ctx, deathsBefore) })
	return consumer.HandlerFunc(func(ctx context.Context, got *consumer.Message) error {
		err := once.Handle(ctx, got)
		switch {
		case err == nil:
			d.mayDie(ctx, deathsAfter)
		case errors.Is(err, consumer.ErrDuplicate):
			return errors.Join(err, d.business.Incr(ctx, doubled).Err())
		}
		return err
	}), nil
}

// noting notes every copy, also dropped copies, unless the copies are noted elsewhere.
func (d doomed) noting(elsewhere bool, once consumer.Handler) consumer.Handler {
	return consumer.HandlerFunc(func(ctx context.Context, got *consumer.Message) error {
		if !elsewhere {
			if err := d.note(ctx, got); err != nil {
				return err
			}
		}
		if isLast(got.Key()) {
			return nil
		}
		return once.Handle(ctx, got)
	})
}

func (d doomed) note(ctx context.Context, got *consumer.Message) error {
	content := NewContent(got.Exchange, got.RoutingKey, got.Headers, got.Body)
	n, err := json.Marshal(note{got.Key(), Copy{content, got.Attempt, got.Redelivered}})
	if err != nil {
		return err
	}
	return d.business.RPush(ctx, notes, n).Err()
}

func (d doomed) handle(ctx context.Context, got *consumer.Message) error {
	d.mayDie(ctx, deathsBefore)
	err := act.Run(ctx, d.business, []string{inbox, effects, doubled}, got.Key()).Err()
	if err != nil && !errors.Is(err, goredis.Nil) {
		return err
	}
	d.mayDie(ctx, deathsAfter)
	return nil
}

// mayDie is kill -9, one time in twenty.
func (d doomed) mayDie(ctx context.Context, point string) {
	if d.random.IntN(20) == 0 && d.business.Decr(ctx, point).Val() >= 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal arrives
	}
}
