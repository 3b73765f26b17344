package consumertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/servers"
)

// Calls notes the messages that handlers get. The zero value is ready.
type Calls struct {
	mu    sync.Mutex
	all   []*consumer.Message
	times map[string]int
}

// Note notes a message, and returns how often a handler got a message with its id.
func (c *Calls) Note(m *consumer.Message) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.times == nil {
		c.times = map[string]int{}
	}
	c.all = append(c.all, m)
	c.times[m.ID]++
	return c.times[m.ID]
}

// Handle notes a message and does nothing else.
func (c *Calls) Handle(_ context.Context, m *consumer.Message) error {
	c.Note(m)
	return nil
}

// All are the messages in the order of their calls.
func (c *Calls) All() []*consumer.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

// Counts is how often a handler got each id.
func (c *Calls) Counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.times)
}

// Times is how often a handler got an id.
func (c *Calls) Times(id string) int { return c.Counts()[id] }

// IDs is how many different messages came.
func (c *Calls) IDs() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.times)
}

// Await waits until each of the messages has come.
func (c *Calls) Await(t testing.TB, ids ...string) {
	t.Helper()
	servers.Eventually(t, patience, fmt.Sprintf("%d messages are handled", len(ids)), func() bool {
		times := c.Counts()
		return !slices.ContainsFunc(ids, func(id string) bool { return times[id] == 0 })
	})
}

// AwaitIDs waits until so many different messages have come.
func (c *Calls) AwaitIDs(t testing.TB, ids int) {
	t.Helper()
	servers.Eventually(t, patience, fmt.Sprintf("%d messages are handled", ids), func() bool { return c.IDs() >= ids })
}

// Want demands how often each of the messages came.
func (c *Calls) Want(t testing.TB, times int, ids ...string) {
	t.Helper()
	counts := c.Counts()
	for _, id := range ids {
		if n := counts[id]; n != times {
			t.Errorf("%s was handled %d times, want %d", id, n, times)
		}
	}
}

// WantOnce demands that each message that came was handled once.
func (c *Calls) WantOnce(t testing.TB) {
	t.Helper()
	c.Want(t, 1, slices.Collect(maps.Keys(c.Counts()))...)
}
