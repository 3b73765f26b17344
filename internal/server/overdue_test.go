package server

import (
	"context"
	"runtime"
	"testing"
)

// Under load there is always a request that has just begun, also while a tick does.
func TestARequestThatBeginsWithATickIsNotOverdue(t *testing.T) {
	t.Parallel()
	all := newConnections(nil, Limits{calls: 1, Bytes: 1})
	one := &connection{all: all, address: &address{}}
	all.open[one] = struct{}{}
	one.frames.ends = true // so nothing waits for the request
	ctx := one.arrive(context.Background(), unfinishedCalls)

	all.mu.Lock() // nobody looks at the connections meanwhile
	late := make(chan int)
	before := all.tick.Load()
	go func() { late <- len(all.overdue()) }()
	for range 100_000 { // until the tick has begun, if it begins before the look
		if all.tick.Load() != before {
			break
		}
		runtime.Gosched()
	}
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = arrive(ctx, func(any) error { close(begun); <-end; return nil }, nil)
	}()
	<-begun
	all.mu.Unlock()
	if n := <-late; n > 0 {
		t.Error("the connection of a request that has just begun is to be closed")
	}
	for range arriveTicks - 1 {
		if n := len(all.overdue()); n > 0 {
			t.Error("it is to be closed before its time is over")
		}
	}
	if n := len(all.overdue()); n != 1 {
		t.Errorf("%d connections are to be closed when its time is over", n)
	}
	close(end)
	<-ended
	if n := len(all.overdue()); n > 0 {
		t.Error("it is to be closed although its request has arrived")
	}
}
