// Package bench is a load of real producers on running coordinators: how many messages a second get through, how long
// each of them takes, what that costs, and whether every one of them arrived.
//
// Everything that it makes has a name of its own: the producers, the queue, the ids. So it can be pointed at
// coordinators that others use as well, and it takes away what it made when it ends. Only the load itself is felt by
// the others.
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

	"github.com/msghandler/msghandler/internal/bench/order"
	"github.com/msghandler/msghandler/internal/bench/usage"
)

// Mode is how producers talk to the coordinators.
type Mode string

const (
	// Gathered is the producer SDK, which gathers half messages, and Submits that are gathered in the same way: the calls
	// are the batch RPCs.
	Gathered Mode = "gathered"
	// Unary is one message a call.
	Unary Mode = "unary"
)

// Config says what load is made. Coordinators and AMQPURL are required; zero values mean the defaults.
type Config struct {
	// Coordinators are their addresses, host:port. The calls go to all of them in turn, or those of a producer to one of
	// them where Pinned says so.
	Coordinators []string
	Pinned       bool
	// TLS is how coordinators are talked to with TLS; nil: nothing is encrypted. What the producers serve never is.
	TLS *tls.Config
	// AMQPURL is where the coordinators publish to. The queues are made there.
	AMQPURL string
	// RedisURL is where the coordinators store, redis://HOST:PORT/DB; it is only asked for its memory, before and after
	// FootprintMessages more have been stored, which are rolled back. Empty: none are stored.
	RedisURL string
	// Mode defaults to Gathered.
	Mode Mode
	// Producers is how many producers there are, each with a name and a callback address of its own. Default 1.
	Producers int
	// Callers is how many messages are under way at once, each begun when another has ended. Default 256 where Mode is
	// Unary, 2,000 where it is Gathered. Not used with a Rate.
	Callers int
	// Rate is how many messages a second become due, however long the ones before take: an open loop. 0: a closed one.
	Rate int
	// Body is how many bytes a body has. Default 1,024.
	Body int
	// Silent is the share of messages that commit and say nothing, Rollback the share that roll back; both from 0 to 1.
	Silent, Rollback float64
	// ConfirmAfter is when a coordinator asks about a silent message. Default 1 s.
	ConfirmAfter time.Duration
	// Warmup is left out of the figures, Duration is measured after it. Defaults 1 s and 10 s.
	Warmup, Duration time.Duration
	// Settle is for how long it waits, while nothing more arrives, for what is still under way in the end. Default 30 s.
	Settle time.Duration
	// Queues is how many queues are made; each producer's messages go to them in turn. The leaders of several are spread
	// over the nodes of the broker. Default 1.
	Queues int
	// Classic makes classic queues instead of quorum queues.
	Classic bool
	// ConsumeAfter empties the queues only when the load is over, so that consuming costs the load nothing.
	ConsumeAfter bool
	// Unpublished says that what answers publishes nothing: the calls alone are measured, and no delivery is waited for.
	Unpublished bool
	// Listen is where the producers' callbacks are served; Target is what coordinators are told instead, where they must
	// dial another address. Default 127.0.0.1:0, and the address listened at.
	Listen, Target string
	// Processes are those whose costs are told.
	Processes usage.Processes
	// Progress is told how it goes, once a second. May be nil.
	Progress func(Progress)
	// Logger gets what the producers complain of. Default: nobody does.
	Logger *slog.Logger
}

// Progress is how a run is going.
type Progress struct {
	// Stage is one of those below.
	Stage string
	// Done counts messages whose callers have their answer, Failed those without one, Delivered what was consumed.
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

// maxOpen bounds the messages of an open loop that are under way at once, as many calls as a coordinator lets one
// producer wait with. Those that are due past it wait, and their time runs.
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

// Check says what is wrong with it, before anything is done.
func (c Config) Check() error {
	_, err := c.withDefaults()
	return err
}

// most is the largest number of callers and the highest rate that makes sense on one machine.
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
		return fmt.Errorf("callers %d: a coordinator lets %d calls of one producer wait, so at most that many each; give it more producers",
			c.Callers, maxOpen)
	case c.Queues < 1 || c.Queues > mostQueues:
		return fmt.Errorf("queues %d: from 1 to %d", c.Queues, mostQueues)
	case c.ConfirmAfter < 0 || c.Warmup < 0 || c.Duration < 0:
		return fmt.Errorf("confirm-after %s, warmup %s, for %s: none may be negative", c.ConfirmAfter, c.Warmup, c.Duration)
	case c.Silent < 0 || c.Rollback < 0 || c.Silent+c.Rollback > 1 || math.IsNaN(c.Silent+c.Rollback):
		return fmt.Errorf("shares of silent commits %g and rollbacks %g: from 0 to 1 together", c.Silent, c.Rollback)
	case c.Producers > 1 && c.Target != "":
		return errors.New("a callback target is that of one producer")
	}
	return nil
}

// Run makes the load, waits until everything has arrived or nothing more does, and takes away what it made. When ctx
// ends it stops at once to begin new messages and does the rest: what was measured until then is in the report.
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
			err = errors.New("interrupted before it began")
		}
		return Report{}, err
	}
	stored, err := r.footprint(ctx)
	if err != nil {
		return Report{}, errors.Join(err, r.discard())
	}
	r.load(ctx)
	if !config.Unpublished {
		r.settle()
	}
	report = r.report()
	report.RedisBytes = stored
	if config.Unpublished {
		return report, nil
	}
	return report, r.discard()
}

// newName names one run: its queues, its producers and its ids begin with it.
func newName() string {
	var random [4]byte
	_, _ = rand.Read(random[:]) // crypto/rand never fails
	return "msghandler-bench-" + hex.EncodeToString(random[:])
}

// run is one run.
type run struct {
	config    Config
	name      string
	bodies    order.Bodies
	queues    *queues
	producers []*sender
	tally     tally
	latencies latencies
	window    window
	// unbegun is how many messages of the window an open loop had no place for.
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
		s, err := r.newSender(fmt.Sprintf("%s.%d", r.name, i), r.config.coordinatorsOf(i))
		if err != nil {
			return err
		}
		r.producers = append(r.producers, s)
	}
	return r.tryOut(ctx)
}

// coordinatorsOf are those that the nth producer calls.
func (c Config) coordinatorsOf(n int) []string {
	if !c.Pinned {
		return c.Coordinators
	}
	at := n % len(c.Coordinators)
	return c.Coordinators[at : at+1]
}

// tryOut sends one message by each producer and rolls it back, so that what cannot work is told in plain words before
// thousands fail.
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

// close takes away what was made.
func (r *run) close() (err error) {
	for _, s := range r.producers {
		err = errors.Join(err, s.close())
	}
	if r.queues != nil {
		err = errors.Join(err, r.queues.remove())
	}
	return err
}
