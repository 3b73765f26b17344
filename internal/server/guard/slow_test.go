package guard

import (
	"context"
	"runtime"
	"testing"
)

// Under load there is always a request that has just begun, also while a tick does.
func TestRequestOfThisTickIsTimely(t *testing.T) {
	t.Parallel()
	g := New(Config{Limits: Limits{Calls: 1, Bytes: 1}})
	c := &connection{guard: g, address: &address{}}
	g.open[c] = struct{}{}
	c.frames.ends = true // so nothing waits for the request
	ctx := c.admit(context.Background(), "/service/Call")

	g.mu.Lock() // no tick begins meanwhile
	late := make(chan int)
	before := g.tick.Load()
	go func() { late <- len(g.nextTick()) }()
	for range 100_000 { // until the tick has begun, in case that happens before the look
		if g.tick.Load() != before {
			break
		}
		runtime.Gosched()
	}
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = g.receive(ctx, func(any) error { close(begun); <-end; return nil }, nil)
	}()
	<-begun
	g.mu.Unlock()
	if n := <-late; n > 0 {
		t.Error("the connection of a request that has just begun is to be closed")
	}
	for range slowTicks - 1 {
		if n := len(g.nextTick()); n > 0 {
			t.Error("the connection is to be closed before its limit")
		}
	}
	if n := len(g.nextTick()); n != 1 {
		t.Errorf("%d connections are to be closed when its time is over", n)
	}
	close(end)
	<-ended
	if n := len(g.nextTick()); n > 0 {
		t.Error("the connection is to be closed although its request has arrived")
	}
}
