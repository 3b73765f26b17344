// Package embedded runs a Redis inside this process, for the demo and for trying things out.
//
// The server is not durable: everything is in memory and gone when the process ends. The server has no password, so it
// listens on loopback only. Never keep data there whose loss would matter. The companion, a broker in this process, is
// package amqpbroker.
package embedded

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/msghandler/msghandler/internal/ground/backoff"
)

const (
	// ttlStep is how often TTLs run down; miniredis does not run TTLs down by itself. The ClockTTL of miniredis looks at
	// every key with each command: with 5,000 keys a command took 0.6 ms in place of 5 µs. A look at all keys five times a
	// second takes less than one percent of a processor. The price: a key may expire that much too early.
	ttlStep = 200 * time.Millisecond
	// ttlShare bounds the share of time of long steps, with very many keys: one in 20.
	ttlShare = 20
)

// Redis is a running Redis. Its methods may be called concurrently.
type Redis struct {
	server *miniredis.Miniredis
	url    string
	addr   string
	stop   context.CancelFunc
	life   context.Context
	clock  sync.Once

	mu sync.Mutex
	// ahead is how far the clock is ahead of this computer's.
	ahead time.Duration

	// running holds the goroutines of runTTLs and runClock.
	running sync.WaitGroup
}

// StartRedis starts a Redis at a loopback address such as 127.0.0.1:6379; empty means a free port of 127.0.0.1. The
// clock is this computer's. The caller must call Close.
func StartRedis(addr string) (*Redis, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	if host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return nil, fmt.Errorf("start the embedded Redis at %q: only loopback addresses are allowed", addr)
	}
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr(addr); err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Redis{
		server: server,
		addr:   server.Addr(),
		url:    "redis://" + server.Addr() + "/0",
		stop:   cancel,
		life:   ctx,
	}
	r.running.Go(func() { r.runTTLs(ctx) })
	return r, nil
}

// Addr is the listening address, HOST:PORT.
func (r *Redis) Addr() string { return r.addr }

// URL is the address as a redis:// URL.
func (r *Redis) URL() string { return r.url }

// Close ends the server and drops all data. Close may be called again.
func (r *Redis) Close() {
	r.stop()
	r.running.Wait()
	r.server.Close()
}

// clockStep is how often a clock that was put forward goes on.
const clockStep = 10 * time.Millisecond

// Advance puts the clock forward: what is due within d is due now, and what expires within d is gone. Afterwards the
// clock goes on in steps of 10 ms.
func (r *Redis) Advance(d time.Duration) {
	r.mu.Lock()
	r.ahead += d
	r.mu.Unlock()
	r.setClock()
	r.server.FastForward(d)
	r.clock.Do(func() { r.running.Go(r.runClock) })
}

func (r *Redis) setClock() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server.SetTime(time.Now().Add(r.ahead))
}

func (r *Redis) runClock() {
	for backoff.Sleep(r.life, clockStep) == nil {
		r.setClock()
	}
}

// runTTLs lets the TTLs of all keys run down as time goes by.
func (r *Redis) runTTLs(ctx context.Context) {
	last, pause := time.Now(), ttlStep
	for backoff.Sleep(ctx, pause) == nil {
		now := time.Now()
		r.server.FastForward(now.Sub(last))
		last = now
		pause = max(ttlStep, ttlShare*time.Since(now))
	}
}
