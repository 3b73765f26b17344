package drill

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/test/servers"
)

// crashAgainAndAgain has the kernel kill a coordinator every few seconds, as a memory limit that is too low does.
func (w *world) crashAgainAndAgain() {
	c := w.coordinators[2]
	ctx, cancel := context.WithCancel(w.t.Context())
	var crashing sync.WaitGroup
	crashing.Go(func() {
		ticker := time.NewTicker(8 * time.Second)
		defer ticker.Stop()
		for ctx.Err() == nil {
			c.end(syscall.SIGKILL)
			w.start(c)
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
	w.crashing = func() {
		cancel()
		crashing.Wait()
	}
	w.t.Cleanup(w.crashing)
}

// stopProducer ends orders between the commit and the answer to Confirm.
func (w *world) stopProducer() {
	w.orders.stop()
	for range 20 {
		w.order()
	}
}

// moveProducer ends stock in the same way, and starts it at another address.
func (w *world) moveProducer() {
	w.stock.stop()
	for n := range 20 {
		w.stock.order(w.t.Context(), w.coordinators[n%3].client)
	}
	w.must(w.stock.serve(servers.Addresses(w.t, 1)[0]))
}

// unbind takes the queue from the exchange.
func (w *world) unbind() {
	conn, err := amqp.Dial(w.rabbit.URL)
	w.must(err)
	defer conn.Close()
	ch, err := conn.Channel()
	w.must(err)
	w.must(ch.QueueUnbind(queue, key, exchange, nil))
}

// fillRedis lets another user of Redis take its memory.
func (w *world) fillRedis() {
	w.redis.CLI("SETRANGE", "filler", "58000000", "x")
	for n := range 200 {
		key := fmt.Sprint("filler-", n)
		if exec.Command("redis-cli", "-e", "-u", w.redis.URL(), "SETRANGE", key, "100000", "x").Run() != nil {
			return
		}
	}
	w.t.Fatal("Redis does not get full")
}

// alarm raises RabbitMQ's alarm of memory.
func (w *world) alarm() { w.rabbit.Ctl("set_vm_memory_high_watermark", "0.0000001") }
