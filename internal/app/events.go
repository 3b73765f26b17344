package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/internal/console"
	"github.com/msghandler/msghandler/internal/events"
	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// eventsGathered is how long events are gathered before they are posted. Equal events are posted as one.
const eventsGathered = time.Second

// openEvents starts the notifier of events.
func (a *App) openEvents() {
	settings := a.settings.Events
	config := events.Config{
		Token: a.present("events.webhook_token", settings.WebhookToken, nil), Gather: eventsGathered,
		Instance: a.process.instance, Logger: a.logger, Metrics: a.metrics,
	}
	if settings.Webhook != "" {
		config.URL = a.present("events.webhook", settings.Webhook, nil)
	}
	a.events = events.New(config)
	a.metrics.Queue("events", a.events.Waiting)
	a.closeWith(closer{name: "events", close: a.events.Close})
}

// Moved implements halfmsg.Watcher: operators get an event for each message that now waits for a decision.
func (a *App) Moved(moves []halfmsg.Moved) {
	for _, move := range moves {
		switch move.State {
		case halfmsg.Abandoned:
			a.events.Note(events.Abandoned, move.Name.Producer, "", move.Name.String())
		case halfmsg.Dead:
			a.events.Note(events.Dead, move.Name.Producer, "", move.Name.String())
		default:
		}
	}
}

// breakerEvents are the metrics of the confirm stage. They also note an event when a circuit breaker opens or closes.
type breakerEvents struct {
	*console.Metrics
	events *events.Notifier
}

// Paused implements confirmloop.Metrics.
func (h breakerEvents) Paused(producer string, paused bool) {
	h.Metrics.Paused(producer, paused)
	if paused {
		h.events.Note(events.BreakerOpen, producer, "a callback target is unreachable: circuit open")
	} else {
		h.events.Note(events.BreakerClosed, producer,
			"a callback target answers again, or no message waits for the target: circuit closed")
	}
}

// noteStore notes when Redis becomes unavailable and available. Only the health loop calls noteStore.
func (a *App) noteStore(up bool) {
	switch away := !up; {
	case away == a.redis.away:
		return
	case away:
		a.logger.Error("Redis does not answer; calls are refused and nothing is published until Redis answers")
		a.events.Note(events.StoreAway, "", "Redis does not answer")
	default:
		a.logger.Info("Redis answers again")
		a.events.Note(events.StoreBack, "", "Redis answers again")
	}
	a.redis.away = !up
}

// noteUnsafe notes when settings of Redis begin to break the promises. Only the settings loop calls noteUnsafe.
func (a *App) noteUnsafe(findings []redisstore.Finding) {
	worst := a.refused(findings)
	if len(worst) > 0 && !a.redis.unsafe {
		unsafe := &UnsafeError{worst}
		a.logger.Error("settings of Redis break the promises; messages can disappear; see the findings", "findings", unsafe)
		a.events.Note(events.StoreUnsafe, "", unsafe.Error())
	}
	a.redis.unsafe = len(worst) > 0
}

// backlogSchedule is the schedule of the loop that counts the backlog.
const backlogSchedule = "@every 10s"

// watchBacklog starts the loop that compares the backlog with the thresholds.
func (a *App) watchBacklog(store *redisstore.Store, urls []string, opened []openBroker) error {
	settings := a.settings.Events
	thresholds := &events.Thresholds{Notifier: a.events, Logger: a.logger}
	a.metrics.Watched(func() map[string]int { return a.backlog.queues.Load().all() })
	a.metrics.DeadLetters(func() map[string]int { return a.backlog.queues.Load().of(settings.DeadLetterQueues) })
	var sendable heldCounts[int64]
	url := a.brokerURL("", strings.Join(urls, ","))
	return a.repeat("backlog", backlogSchedule, func(ctx context.Context) error {
		counts, err := a.countBacklog(ctx, store, opened)
		if err == nil {
			sendable.note(counts, a.inPart())
			a.metrics.Waiting(sendable.all()[backlogReachable])
			thresholds.Compare("sendable", int(sendable.all()[backlogWhole]), a.bounds.Sendable)
		}
		found, brokerErr := a.depths(ctx, url())
		a.logMissing(a.backlog.queues.Load().all(), found, brokerErr)
		// No depths are known while the broker does not answer: old depths may be wrong.
		a.backlog.queues.Store(&queueDepths{found, brokerErr == nil})
		a.compareQueues(thresholds, found)
		return errors.Join(err, brokerErr)
	})
}

// The backlog, and the part whose brokers are not away: an alert about an absent broker tells of the rest.
const backlogWhole, backlogReachable = "whole", "reachable"

func (a *App) countBacklog(
	ctx context.Context, store *redisstore.Store, opened []openBroker,
) (counts map[string]int64, err error) {
	var away []string
	for _, b := range opened {
		if b.Ready() != nil {
			away = append(away, b.name)
		}
	}
	counts = map[string]int64{}
	if counts[backlogWhole], err = store.Backlog(ctx, a.bounds.SendableAge); err != nil || len(away) == 0 {
		counts[backlogReachable] = counts[backlogWhole]
		return counts, err
	}
	counts[backlogReachable], err = store.Backlog(ctx, a.bounds.SendableAge, away...)
	return counts, err
}

// depths counts the messages in the watched queues.
func (a *App) depths(ctx context.Context, url string) (map[string]int, error) {
	watched := slices.Concat(a.settings.Events.Queues, a.settings.Events.DeadLetterQueues)
	if len(watched) == 0 {
		return map[string]int{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return rabbitmq.Depths(ctx, rabbitmq.Config{URL: url, Dial: a.process.network.Dial}, watched...)
}

// tellMissing logs each watched queue that turns out to be missing.
func (a *App) logMissing(before, now map[string]int, err error) {
	for _, queue := range slices.Concat(a.settings.Events.Queues, a.settings.Events.DeadLetterQueues) {
		_, was := before[queue]
		_, is := now[queue]
		if err == nil && !is && (was || before == nil) {
			a.logger.Warn("a watched queue does not exist; check its name and the virtual host", "queue", queue)
		}
	}
}

func (a *App) compareQueues(thresholds *events.Thresholds, depths map[string]int) {
	for _, queue := range a.settings.Events.Queues {
		if depth, known := depths[queue]; known {
			thresholds.Compare("queue "+queue, depth, a.settings.Events.QueueMessages)
		}
	}
	for _, queue := range a.settings.Events.DeadLetterQueues {
		if depth, known := depths[queue]; known {
			thresholds.Compare("dead-letter queue "+queue, depth, 1)
		}
	}
}
