// Package load is a service under load: it commits orders through one of the compared systems, and times each order
// from the start of its business until a consumer has the message.
//
// The consumer runs in another process, which tells the numbers of the messages that have arrived. So all systems are
// timed by the same clock, at the same point, independent of who publishes.
package load

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/msghandler/msghandler/dev/bench/order"
	"github.com/msghandler/msghandler/test/compare/systems"
)

// Config says which system is put under which load.
type Config struct {
	// System is the name of the system.
	System string
	// Servers are where the system's servers are.
	Servers systems.Config
	// RoutingKey is where the messages go.
	RoutingKey string
	// First is the number of the first order; numbers begin with 1.
	First uint64
	// Callers is how many orders are under way at once in a closed loop. 0: no closed loop.
	Callers int
	// Rate is how many orders a second are begun, also while earlier orders wait. 0: not at a rate.
	Rate int
	// Orders ends the load after so many orders; 0: after Warmup and Duration.
	Orders uint64
	// Warmup comes before the measurement, which lasts for Duration.
	Warmup, Duration time.Duration
	// Settle is how long the orders under way may take to arrive after the load. A load of so many Orders ends after the
	// same time at the latest.
	Settle time.Duration
	// BodySize is the size of each message's body.
	BodySize int
}

// Stop is the number that ends the load when it comes in place of an arrived message.
const Stop = 0

// The stages that a load reports.
const (
	StageReady = "ready"
	StageBegin = "begin"
	StageEnd   = "end"
	StageDone  = "done"
)

// Event is a line of the output.
type Event struct {
	Stage string `json:"stage"`
	// Report comes with StageDone.
	Report *Report `json:"report,omitempty"`
}

// Report is the result.
type Report struct {
	// Committed orders, and orders that were not committed.
	Committed, Failed int64
	// FirstError is the first failure.
	FirstError string
	// Rate is the number of messages a second that arrived during the measurement, and Arrived their number.
	Rate    float64
	Arrived int64
	// Missing messages had not arrived when Settle was over.
	Missing int
	// Times are of all orders that began during the measurement, in milliseconds: until the call that commits returned,
	// and until the message arrived.
	Commit, Arrival Times
}

// Times is a distribution in milliseconds.
type Times struct{ P50, P99, Max float64 }

// longest and digits are the range of the histograms, in microseconds.
const longest, digits = 300_000_000, 3

// load is a running load.
type load struct {
	config Config
	system systems.System
	bodies order.Bodies
	output *json.Encoder
	next   atomic.Uint64
	// stopped ends when no order is to begin any more.
	stopped context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	waiting   map[uint64]chan struct{}
	measuring bool
	report    Report
	commits   *hdrhistogram.Histogram
	arrivals  *hdrhistogram.Histogram
}

// Run puts the load on the system. It reads the numbers of arrived messages from in, as 8 bytes each, and writes events
// to out, a line of JSON each.
func Run(ctx context.Context, config Config, in io.Reader, out io.Writer) error {
	kind, err := systems.Named(config.System)
	if err != nil {
		return err
	}
	system, err := kind.Open(ctx, config.Servers)
	if err != nil {
		return fmt.Errorf("open %s: %w", kind.Name, err)
	}
	defer system.Close()
	l := &load{
		config: config, system: system, bodies: order.New(config.BodySize), output: json.NewEncoder(out),
		waiting: map[uint64]chan struct{}{},
		commits: hdrhistogram.New(1, longest, digits), arrivals: hdrhistogram.New(1, longest, digits),
	}
	l.next.Store(config.First)
	l.stopped, l.stop = context.WithCancel(ctx)
	defer l.stop()
	go l.listen(in)
	return l.run()
}

func (l *load) run() error {
	if err := l.say(StageReady); err != nil {
		return err
	}
	settled, cancel := context.WithCancel(context.WithoutCancel(l.stopped))
	defer cancel()
	l.begin(settled)
	if l.config.Orders > 0 {
		wait(l.stopped, l.config.Settle) // callers wait for messages that may never arrive
		l.stop()
	} else if err := l.measure(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { l.running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(l.config.Settle):
	}
	cancel()
	<-ended
	return l.output.Encode(Event{Stage: StageDone, Report: l.result()})
}

// begin starts the callers.
func (l *load) begin(settled context.Context) {
	for range l.config.Callers {
		l.running.Go(func() {
			for l.stopped.Err() == nil {
				if number, more := l.number(); more {
					l.send(settled, number, time.Now())
				}
			}
		})
	}
	if l.config.Rate > 0 {
		l.running.Go(func() { l.offer(settled) })
	}
}

// number is the number of the next order, if there is another.
func (l *load) number() (uint64, bool) {
	number := l.next.Add(1) - 1
	if l.config.Orders == 0 {
		return number, true
	}
	last := l.config.First + l.config.Orders - 1
	if number >= last {
		l.stop()
	}
	return number, number <= last
}

// offer begins orders at the rate. An order that is begun late is timed from when it was due.
func (l *load) offer(settled context.Context) {
	start := time.Now()
	for n := 0; ; n++ {
		due := start.Add(time.Duration(n) * time.Second / time.Duration(l.config.Rate))
		select {
		case <-time.After(time.Until(due)):
		case <-l.stopped.Done():
			return
		}
		number, more := l.number()
		if !more {
			return
		}
		l.running.Go(func() { l.send(settled, number, due) })
	}
}

// measure waits for the warm-up and the measurement, and ends the load.
func (l *load) measure() error {
	wait(l.stopped, l.config.Warmup)
	begun := time.Now()
	l.setMeasuring(true)
	if err := l.say(StageBegin); err != nil {
		return err
	}
	wait(l.stopped, l.config.Duration)
	l.setMeasuring(false)
	l.mu.Lock()
	l.report.Rate = float64(l.report.Arrived) / time.Since(begun).Seconds()
	l.mu.Unlock()
	defer l.stop()
	return l.say(StageEnd)
}

// wait waits for a time, or the end of the load.
func wait(ended context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ended.Done():
	}
}

func (l *load) setMeasuring(measuring bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.measuring = measuring
}

func (l *load) say(stage string) error { return l.output.Encode(Event{Stage: stage}) }

// send commits an order and waits until its message has arrived.
func (l *load) send(settled context.Context, number uint64, due time.Time) {
	arrived := make(chan struct{})
	l.mu.Lock()
	measured := l.measuring
	l.waiting[number] = arrived
	l.mu.Unlock()
	err := l.system.Commit(settled, systems.Order{
		Number: number, RoutingKey: l.config.RoutingKey, Body: l.bodies.Of(number),
	})
	committed := time.Since(due)
	if err != nil {
		l.failed(number, err)
		return
	}
	came := false
	select {
	case <-arrived:
		came = true
	case <-settled.Done():
	}
	l.done(number, measured, committed, time.Since(due), came)
}

func (l *load) failed(number uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, number)
	l.report.Failed++
	if l.report.FirstError == "" {
		l.report.FirstError = err.Error()
	}
}

func (l *load) done(number uint64, measured bool, committed, arrived time.Duration, came bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, number)
	l.report.Committed++
	if !came {
		l.report.Missing++
	}
	if measured {
		_ = l.commits.RecordValue(min(committed.Microseconds(), longest)) // no other error than a value above the range
		_ = l.arrivals.RecordValue(min(arrived.Microseconds(), longest))
	}
}

// listen reads the numbers of arrived messages.
func (l *load) listen(in io.Reader) {
	reader := bufio.NewReader(in)
	for {
		var number uint64
		if err := binary.Read(reader, binary.LittleEndian, &number); err != nil {
			l.stop() // the consumer is gone
			return
		}
		if number == Stop {
			l.stop()
			continue
		}
		l.arrive(number)
	}
}

func (l *load) arrive(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.measuring {
		l.report.Arrived++
	}
	if arrived := l.waiting[number]; arrived != nil {
		close(arrived)
		delete(l.waiting, number)
	}
}

func (l *load) result() *Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.Commit, l.report.Arrival = times(l.commits), times(l.arrivals)
	return &l.report
}

func times(h *hdrhistogram.Histogram) Times {
	at := func(percent float64) float64 { return float64(h.ValueAtPercentile(percent)) / 1000 }
	return Times{P50: at(50), P99: at(99), Max: float64(h.Max()) / 1000}
}
