// Package bench puts a load of real producers on running coordinators, and measures throughput, times, costs, and
// whether every message arrived.
//
// The producers, the queues and the ids of a run have names of their own, and a run removes them at its end. A load can
// therefore run on coordinators in use, whose other clients feel only the load.
package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/msghandler/msghandler/dev/bench/order"
	"github.com/msghandler/msghandler/dev/bench/usage"
)

// Mode is how producers talk to the coordinators.
type Mode string

const (
	// Gathered is the producer SDK, which gathers half messages, with Submits gathered in the same way: calls are the
	// batch RPCs.
	Gathered Mode = "gathered"
	// Unary is one message a call.
	Unary Mode = "unary"
)

// Config describes the load. Coordinators and AMQPURL are required; zero values mean the defaults.
type Config struct {
	// Coordinators are addresses, host:port. Calls go to all of them in turn.
	Coordinators []string
	// TLS is the configuration of connections to coordinators; nil: plaintext. Producers serve plaintext in any case.
	TLS *tls.Config
	// Token is shown to the coordinators; empty: none.
	Token string
	// AMQPURL is where the coordinators publish to. The queues are made there.
	AMQPURL string
	// Mode defaults to Gathered.
	Mode Mode
	// Producers is how many producers there are, each with a name and a callback address of its own. Default 1.
	Producers int
	// Callers is how many messages are in flight at once, each begun when another has ended. Default 256 where Mode is
	// Unary, 2,000 where Mode is Gathered. Not used with a Rate.
	Callers int
	// Rate is how many messages a second become due, however long the ones before take: an open loop. 0: a closed one.
	Rate int
	// Body is how many bytes a body has. Default 1,024.
	Body int
	// Silent is the share of messages that commit without a Submit, Rollback the share that roll back, each from 0 to 1.
	Silent, Rollback float64
	// ConfirmAfter is when a coordinator asks about a silent message. Default 1 s.
	ConfirmAfter time.Duration
	// Warmup comes first and is not measured; Duration is measured. Defaults 1 s and 10 s.
	Warmup, Duration time.Duration
	// Settle bounds the wait for messages in flight after the load, while no delivery comes. Default 30 s.
	Settle time.Duration
	// Queues is how many queues are made; each producer's messages go to them in turn. The leaders of several are spread
	// over the nodes of the broker. Default 1.
	Queues int
	// Classic makes classic queues instead of quorum queues.
	Classic bool
	// ConsumeAfter empties the queues only after the load, so that consuming does not slow the load.
	ConsumeAfter bool
	// Listen is where the producers serve callbacks; Target is the address given to coordinators, where they must dial
	// another. Default 127.0.0.1:0, and the address listened at.
	Listen, Target string
	// Processes are the processes whose costs are reported.
	Processes usage.Processes
	// Progress is called once a second. May be nil.
	Progress func(Progress)
	// Logger gets the warnings of the producers. Default: none.
	Logger *slog.Logger
}

// Progress is how a run is going.
type Progress struct {
	// Stage is StageWarming, StageMeasuring or StageSettling.
	Stage string
	// Done counts messages whose callers have their answer, Failed those without an answer, Delivered the consumed
	// messages.
	Done, Failed, Delivered int64
	// Rate is messages a second since the last time.
	Rate float64
}

// The stages of a run.
const (
	StageWarming   = "warming up"
	StageMeasuring = "measuring"
	StageSettling  = "settling"
)

// maxOpen bounds the messages of an open loop in flight: as many calls as a coordinator lets one producer wait with.
// Further due messages wait for a place, and their time runs.
const maxOpen = 5_000

func (c Config) withDefaults() (Config, error) {
	c.Mode = cmp.Or(c.Mode, Gathered)
	c.Producers, c.Queues = cmp.Or(c.Producers, 1), cmp.Or(c.Queues, 1)
	if c.Callers == 0 {
		c.Callers = map[Mode]int{Gathered: 2000, Unary: 256}[c.Mode]
	}
	c.Body = cmp.Or(c.Body, 1024)
	c.ConfirmAfter = cmp.Or(c.ConfirmAfter, time.Second)
	c.Warmup, c.Duration = cmp.Or(c.Warmup, time.Second), cmp.Or(c.Duration, 10*time.Second)
	c.Settle = cmp.Or(c.Settle, 30*time.Second)
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:0")
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	return c, c.valid()
}

// Check returns what is wrong with the configuration, without starting anything.
func (c Config) Check() error {
	_, err := c.withDefaults()
	return err
}

// most is the largest number of callers, and the highest rate, for one machine.
const most = 1_000_000

// mostQueues is far more than spreads a load, and little for a broker.
const mostQueues = 1000

func (c Config) valid() error {
	switch {
	case len(c.Coordinators) == 0 || c.AMQPURL == "":
		return errors.New("no coordinator or no broker is named")
	case c.Mode != Gathered && c.Mode != Unary:
		return fmt.Errorf("mode %q: gathered or unary", c.Mode)
	case c.Producers < 1 || c.Callers < 1 || c.Rate < 0 || c.Body < 0 || max(c.Producers, c.Callers, c.Rate) > most:
		return fmt.Errorf("producers %d, callers %d, rate %d, body %d: none may be negative or above a million",
			c.Producers, c.Callers, c.Rate, c.Body)
	case c.Mode == Unary && c.Rate == 0 && c.Callers > c.Producers*maxOpen:
		return fmt.Errorf("callers %d: a coordinator lets only %d calls of one producer wait; raise the number of producers",
			c.Callers, maxOpen)
	case c.Queues < 1 || c.Queues > mostQueues:
		return fmt.Errorf("queues %d: from 1 to %d", c.Queues, mostQueues)
	case c.ConfirmAfter < 0 || c.Warmup < 0 || c.Duration < 0:
		return fmt.Errorf("confirm-after %s, warmup %s, for %s: none may be negative", c.ConfirmAfter, c.Warmup, c.Duration)
	case c.Silent < 0 || c.Rollback < 0 || c.Silent+c.Rollback > 1 || math.IsNaN(c.Silent+c.Rollback):
		return fmt.Errorf("shares of silent commits %g and rollbacks %g: from 0 to 1 together", c.Silent, c.Rollback)
	case c.Producers > 1 && c.Target != "":
		return errors.New("a callback target is the address of one producer; set producers to 1")
	}
	return nil
}

// Run makes the load, waits until all messages have arrived or no more do, and removes the run's queues and messages.
// When ctx ends, no new message begins, and the report holds the measurements until then.
func Run(ctx context.Context, config Config) (report Report, err error) {
	config, err = config.withDefaults()
	if err != nil {
		return Report{}, err
	}
	r := &run{config: config, name: newName(), bodies: order.New(config.Body)}
	r.latencies = newLatencies()
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.open(ctx); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted before the load began")
		}
		return Report{}, err
	}
	r.load(ctx)
	r.settle()
	return r.report(), r.discard()
}

// newName returns the name of a run, with which the names of its queues, producers and ids begin.
func newName() string {
	var random [4]byte
	_, _ = rand.Read(random[:]) // crypto/rand never fails
	return "msghandler-bench-" + hex.EncodeToString(random[:])
}

// run is a load in progress.
type run struct {
	config    Config
	name      string
	bodies    order.Bodies
	queues    *queues
	producers []*sender
	tally     tally
	latencies latencies
	window    window
	// unbegun counts the messages of the window for which an open loop had no place.
	unbegun int64
}

// open makes the queues and the producers.
func (r *run) open(ctx context.Context) error {
	var err error
	if r.queues, err = openQueues(r.config.AMQPURL, r.name, r.config.Queues, r.config.Classic); err != nil {
		return err
	}
	r.tally.prefix = r.name + "-"
	if !r.config.ConsumeAfter {
		if err := r.queues.consume(r.delivered); err != nil {
			return err
		}
	}
	for i := range r.config.Producers {
		s, err := r.newSender(fmt.Sprintf("%s.%d", r.name, i), r.config.Coordinators)
		if err != nil {
			return err
		}
		r.producers = append(r.producers, s)
	}
	return r.tryOut(ctx)
}

// tryOut has each producer send and roll back one message, so that an operator reads a plain error before thousands of
// messages fail.
func (r *run) tryOut(ctx context.Context) error {
	for _, s := range r.producers {
		number := r.tally.begin(rolledBack)
		if err := s.half(ctx, r.tally.id(number)); err != nil {
			return explain(err, s.target)
		}
		if err := s.rollback(ctx, r.tally.id(number)); err != nil {
			return explain(err, s.target)
		}
	}
	return nil
}

// close removes the queues and ends the producers.
func (r *run) close() (err error) {
	for _, s := range r.producers {
		err = errors.Join(err, s.close())
	}
	if r.queues != nil {
		err = errors.Join(err, r.queues.remove())
	}
	return err
}
