// Package sendloop brings committed messages to the brokers: it claims due SENDABLE messages, publishes them and stores
// the brokers' answers.
//
// Messages come in two ways. Pass claims due messages, the backlog; Offer takes messages that the confirm stage has
// just made SENDABLE. Each broker has a stage of its own (stage.go) with a bounded queue and a lane for each way, and a
// pass claims for the brokers with room that take messages. So a broker that is away, blocked or slow holds no place of
// another broker. Workers take batches from the lanes and publish them (publish.go).
package sendloop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/assert"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/loglimit"
)

// Sender is the send stage of an instance. The methods may be called concurrently.
type Sender struct {
	config  Config
	settler delivery.Settler
	// failures gathers the log lines about messages.
	failures *loglimit.Gatherer
	// calls is the context of everything under way; cancel ends it when Close cannot wait any longer.
	calls  context.Context
	cancel context.CancelFunc
	// work counts the batches under way.
	work lifecycle.Group
	// stages are the brokers by name, and names the names in order.
	stages map[string]*brokerStage
	names  []string
}

// New returns a Sender. It must be closed.
func New(config Config) *Sender {
	config = config.complete()
	failures := loglimit.NewGatherer(config.Logger)
	s := &Sender{
		config: config,
		settler: delivery.Settler{
			Store: config.Store, Watcher: config.Pipeline, Metrics: config.Metrics, Logger: config.Logger,
			Failures: failures,
		},
		failures: failures,
		stages:   map[string]*brokerStage{},
		names:    slices.Sorted(maps.Keys(config.Brokers)),
	}
	s.settler.Work = &s.work
	s.calls, s.cancel = context.WithCancel(context.Background())
	for name, broker := range config.Brokers {
		s.stages[name] = newBrokerStage(s, name, broker)
	}
	return s
}

// Pass claims due messages, at most a batch, for the brokers that take messages and have room, and starts to publish
// them. Pass does not wait for a broker. Messages for other brokers are not claimed. more says that the store may have
// more messages, and that there is room for them. The error is the store's; messages claimed in spite of the error are
// under way.
func (s *Sender) Pass(ctx context.Context) (more bool, err error) {
	brokers, limit := s.open()
	if limit == 0 {
		return false, nil
	}
	// Counted from before the call, so that the lease never seems longer than it is.
	until := time.Now().Add(s.config.Lease)
	claims, err := s.config.Store.ClaimSendable(ctx, limit, s.config.Lease, brokers...)
	unknown := s.divide(delivery.BacklogWithLease(claims, until), func(stage *brokerStage, held []delivery.Leased) {
		s.handBack(stage.admit(held, false))
	})
	s.release(outcomesUnknown(unknown))
	if err != nil {
		return false, fmt.Errorf("claim sendable messages: %w", err)
	}
	_, room := s.open()
	return len(claims) >= limit && room > 0, nil
}

// open names the brokers that take messages and have room, and says how many messages a pass may claim. A pass divides
// its claims among the brokers, so a batch may overfill the queue of a broker.
func (s *Sender) open() (brokers []string, limit int) {
	for _, name := range s.names {
		if free := s.stages[name].free(); free > 0 {
			brokers, limit = append(brokers, name), max(limit, free)
		}
	}
	return brokers, limit
}

// divide hands messages to the stages of their brokers, and returns the messages for unknown brokers.
func (s *Sender) divide(
	held []delivery.Leased, take func(stage *brokerStage, held []delivery.Leased),
) (unknown []delivery.Leased) {
	if len(s.stages) == 1 && !slices.ContainsFunc(held, func(h delivery.Leased) bool { return h.Broker != "" }) {
		take(s.stages[""], held)
		return nil
	}
	parts := map[string][]delivery.Leased{}
	for i := range held {
		if broker := held[i].Broker; s.stages[broker] != nil {
			parts[broker] = append(parts[broker], held[i])
		} else {
			unknown = append(unknown, held[i])
		}
	}
	for broker, part := range parts {
		take(s.stages[broker], part)
	}
	return unknown
}

// Offer takes messages that were just made SENDABLE and whose leases end at until, and starts to publish them. Messages
// without room are handed back to the store, and so are messages whose broker takes none; only then Offer waits for the
// store.
func (s *Sender) Offer(claims []halfmsg.Claim, until time.Time) {
	unknown := s.divide(delivery.WithLease(claims, until), func(stage *brokerStage, held []delivery.Leased) {
		stage.offer(held)
	})
	s.release(outcomesUnknown(unknown))
}

// errUnknownBroker is the cause of messages for another instance.
var errUnknownBroker = errors.New("this coordinator does not know the broker: set brokers.NAME.url for it")

// outcomesUnknown hands back messages for unknown brokers, due when another instance claims for their broker.
func outcomesUnknown(held []delivery.Leased) []delivery.Outcome {
	outcomes := make([]delivery.Outcome, len(held))
	for i, h := range held {
		assert.Always(h.Broker != "", "every coordinator knows the default broker", h.Producer, h.ID)
		outcomes[i] = delivery.Outcome{
			Leased: h, Event: halfmsg.EventReleased, After: unsentPause.DelayAfter(h.DueFor()),
			Cause: fmt.Sprintf("broker %s: %v", h.Broker, errUnknownBroker),
		}
	}
	return outcomes
}

// Waiting is how many messages wait in memory for a broker; "" is the default broker.
func (s *Sender) Waiting(broker string) int { return s.stages[broker].waiting() }

// Close hands back the waiting messages and lets the batches under way end. When ctx ends first, messages that have not
// left yet are not published any more, the rest waits for the end of its leases, and the context's error is returned.
// From now on Offer hands everything back. Close may be called repeatedly.
func (s *Sender) Close(ctx context.Context) error {
	defer s.failures.Flush()
	for _, stage := range s.stages {
		waiting := stage.close()
		s.work.Go(func() { s.handBack(waiting) })
	}
	defer s.cancel()
	if err := s.work.Wait(ctx); err != nil {
		return fmt.Errorf("messages are still being published: %w", err)
	}
	return nil
}
