package nats_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/broker/nats/natsconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/servers"
)

// depths keeps the last depths that a consumer reported.
type depths struct {
	mu          sync.Mutex
	depth, dead map[string]int
}

func (d *depths) Begun(string)                                 {}
func (d *depths) Ended(string, consumer.Result, time.Duration) {}

func (d *depths) Depth(stream string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.depth[stream] = n
}

func (d *depths) DeadLetters(stream string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead[stream] = n
}

// await waits until the depths of ORDERS and DEAD are reported.
func (d *depths) await(t *testing.T, waiting, dead int) {
	t.Helper()
	servers.Eventually(t, time.Minute, fmt.Sprintf("%d wait and %d are dead", waiting, dead), func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		w, known := d.depth["ORDERS"]
		n, counted := d.dead["DEAD"]
		return known && counted && w == waiting && n == dead
	})
}

// Messages with the consumer count as well as those that wait in the stream; others of the stream do not.
func TestObserverGetsDepths(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(numbered(10)...)
	if _, err := w.js.Publish(t.Context(), "orders.cancelled", nil); err != nil {
		t.Fatal(err)
	}
	o := &depths{depth: map[string]int{}, dead: map[string]int{}}
	config := w.config()
	config.Subjects, config.Prefetch = []string{"orders.paid"}, 2
	config.Observer, config.DepthInterval = o, 20*time.Millisecond
	release := make(chan struct{})
	stop := w.run(config, func(_ context.Context, m *consumer.Message) error {
		<-release
		if m.ID == "3" || m.ID == "4" {
			return consumer.Reject(errors.New("no JSON"))
		}
		return nil
	})
	o.await(t, 10, 0)
	close(release)
	o.await(t, 0, 2)
	if n, err := w.deadLetters().Discard(t.Context(), "orders/3"); n != 1 || err != nil {
		t.Errorf("discarded %d, %v", n, err)
	}
	o.await(t, 0, 1)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestNegativeDepthIntervalIsRefused(t *testing.T) {
	t.Parallel()
	_, err := natsconsumer.New(natsconsumer.Config{URL: "nats://h", Stream: "S", Name: "n", DepthInterval: -1})
	if err == nil || !strings.Contains(err.Error(), "DepthInterval is negative") {
		t.Error(err)
	}
}
