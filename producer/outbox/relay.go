package outbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/ground/logtext"
	"github.com/msghandler/msghandler/producer/marker/sql"
)

// Table is a local message table; sql.Store is one.
type Table interface {
	Claim(ctx context.Context, request sql.ClaimRequest) (sql.Claim, error)
	Load(ctx context.Context, token string, claimed []sql.Claimed) ([]sql.Queued, error)
	Release(ctx context.Context, token string, outcomes []sql.Outcome) (held int64, err error)
	Purge(ctx context.Context) (removed int64, err error)
	Backlog(ctx context.Context) (sql.Backlog, error)
	Queued() <-chan struct{}
}

// Runner is a Table with work of its own beside the relay, such as leases. Relay.Run calls Run, and waits for its end.
type Runner interface{ Run(ctx context.Context) }

// Sender sends messages. Send is called by one goroutine of each relay.
type Sender interface {
	// Send sends messages and returns a result for each, in their order. Send returns when its context ends, or a moment
	// later with the answers that were on their way; a message without an answer by then is Unreached.
	Send(ctx context.Context, messages []sql.Queued) []Result
}

// Readier is a Sender that knows whether its receiver takes messages. While Ready returns an error, the relay claims
// nothing, so the messages wait in the table.
type Readier interface{ Ready() error }

// Result is the outcome of one message.
type Result struct {
	Fate Fate
	// Err says why, for all but Sent and Handed.
	Err error
	// In is after how long the message is to be offered again, for Early.
	In time.Duration
	// Unsent: an Unreached message certainly did not leave, so its claim is not counted.
	Unsent bool
	// Final: no attempt can send the message as it is, so a Refused message fails at once.
	Final bool
}

// Fate is a sender's answer for a message.
type Fate uint8

// The fates.
const (
	// Unreached: no answer took or refused the message. The message waits, and uses up no attempt.
	Unreached Fate = iota
	// Sent: the broker has the message. Nothing is left to do.
	Sent
	// Handed: the coordinator has the message, and deletes the marker when the verdict is stored.
	Handed
	// Refused: an attempt is used up.
	Refused
	// Early: the message was not sent, because its delay is not over, or because of Err.
	Early
)

// Config configures a relay. Table and Sender must be given.
type Config struct {
	Table  Table
	Sender Sender
	// Owner names this relay in the table. Default: host, process and a random part.
	Owner string
	// Broker: the relay sends the messages that name this broker, where Table is an sql.Outbox. Empty: those that name
	// none.
	Broker string
	// Batch is the most messages that one claim takes. Default: 200.
	Batch int
	// Bytes is the length of content at which a batch ends. So the relay holds no more than Bytes and one message.
	// A claim or a Load that failed halves Batch and Bytes for the next claim. Default: 4 MiB.
	Bytes int64
	// Interval is how often the table is read when no commit of this process wakes the relay. Default: 5 s.
	Interval time.Duration
	// Lock is how long a claim lasts, and so how long the messages of a dead relay wait. A sender gets two thirds of
	// Lock. Content that takes long to load makes its claim longer. Default: 30 s.
	Lock time.Duration
	// Backoff are the delays after a refusal; the last repeats. Default: 5 s, 30 s, 2 min, doubling up to an hour.
	Backoff []time.Duration
	// MaxAttempts is how many refusals make a message failed. Default: 10.
	MaxAttempts int
	// Exact makes the delays of Backoff exact. Default: each delay lies between its half and the whole, so that messages
	// which were refused together are spread.
	Exact bool
	// Retries gives Backoff, MaxAttempts and Exact by name, where Backoff and MaxAttempts are not set.
	Retries Retries
	// Again is the shortest delay before a message is handed over again whose marker was not deleted; the delay grows
	// with the message's age, up to an hour. Default: 1 min.
	Again time.Duration
	// PurgeInterval is how often old rows are removed. Default: 1 hour.
	PurgeInterval time.Duration
	// Observer receives the fates of messages and the numbers of the table. Nil: none.
	Observer Observer
	// CountInterval is how often the table is counted for Observer. A count reads each unsent message.
	// Default: 1 min.
	CountInterval time.Duration
	// Logger gets warnings and errors, and at level Debug a line for each message that was published or handed over.
	// Default: slog.Default().
	Logger *slog.Logger
	// Language is the language of the fixed log text for messages that could not be sent: "en", the default, or "zh".
	Language string
}

// longest caps growing delays.
const longest = time.Hour

// Relay sends due messages until its context ends.
type Relay struct {
	config  Config
	backoff backoff.Steps
	countAt time.Time
	// halvings is how often Batch and Bytes are halved for the next claim.
	halvings int
	departed departed
	refusals refusals
}

// New returns a relay, or an error for a configuration that cannot work.
func New(config Config) (*Relay, error) {
	switch {
	case config.Table == nil:
		return nil, errors.New("outbox.Config: Table is missing; give the producer's SQL marker store")
	case config.Sender == nil:
		return nil, errors.New("outbox.Config: Sender is missing; give ToCoordinator(p), " +
			"or one of rabbitmqoutbox, kafkaoutbox or natsoutbox")
	case config.Batch < 0, config.Bytes < 0, config.Interval < 0, config.Lock < 0, config.MaxAttempts < 0,
		config.Again < 0, config.PurgeInterval < 0, config.CountInterval < 0:
		return nil, errors.New("outbox.Config: a number or a duration is negative")
	}
	if err := logtext.Language(config.Language).Check(); err != nil {
		return nil, fmt.Errorf("outbox.Config: Language: %w", err)
	}
	host, _ := os.Hostname() // only for people
	config.Owner = cmp.Or(config.Owner, fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:6]))
	config.Batch = cmp.Or(config.Batch, 200)
	config.Bytes = cmp.Or(config.Bytes, 4<<20)
	config.Interval = cmp.Or(config.Interval, 5*time.Second)
	config.Lock = cmp.Or(config.Lock, 30*time.Second)
	config.Retries.apply(&config)
	config.Again = cmp.Or(config.Again, time.Minute)
	config.PurgeInterval = cmp.Or(config.PurgeInterval, time.Hour)
	config.CountInterval = cmp.Or(config.CountInterval, time.Minute)
	config.Observer = cmp.Or(config.Observer, Observer(unobserved{}))
	config.Logger = cmp.Or(config.Logger, slog.Default())
	return &Relay{config: config, backoff: config.Backoff}, nil
}

// Run relays until its context ends, and then releases its claim and returns. Failures are logged and retried at the
// next turn.
func (r *Relay) Run(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { r.purge(ctx) })
	if table, ok := r.config.Table.(Runner); ok {
		beside.Go(func() { table.Run(ctx) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-r.config.Table.Queued():
		case <-timer.C:
		}
		more, err := true, error(nil)
		for more && ctx.Err() == nil {
			var trouble error
			more, trouble = r.Pass(ctx)
			err = cmp.Or(trouble, err)
			r.count(ctx)
		}
		if err == nil {
			failures = 0
		} else if ctx.Err() == nil {
			r.logTrouble(err)
			failures++
		}
		timer.Reset(r.pause(failures))
	}
}

// troublePauses are the pauses after passes that failed in a row.
var troublePauses = backoff.Exponential(time.Second, 30*time.Second)

// pause is the time until the next pass. A long Interval is no reason to leave a database alone that is back.
func (r *Relay) pause(failures int) time.Duration {
	if failures == 0 {
		return r.config.Interval
	}
	return min(r.config.Interval, troublePauses.Delay(failures-1))
}

// Pass claims a batch, loads and sends the messages, and records their fates. more is set after a full batch of which
// some message had an answer: messages without one must not keep those behind them waiting.
func (r *Relay) Pass(ctx context.Context) (more bool, err error) {
	defer r.refusals.log(r.config.Logger)
	begun := time.Now() // the lock counts from some time after
	claim, err := r.claim(ctx)
	if err != nil || len(claim.Messages) == 0 {
		r.fit(err)
		return false, err
	}
	messages, err := r.load(ctx, claim)
	r.fit(err)
	// What was not loaded is released, so that the next claim has it.
	waiting := r.unloaded(claim.Messages, messages, err)
	r.departed.recount(messages)
	// Messages that need no further copy come first: no trouble with the others may delay their record.
	var ended []judgement
	for i, result := range r.send(ctx, messages, begun.Add(r.longer(claim))) {
		j := judgement{result, messages[i].Name(), r.outcomeOf(messages[i], result)}
		if j.outcome.Refused && j.outcome.State == sql.StateWaiting && messages[i].Attempts == 0 {
			r.refusals.note(j)
		}
		r.log(ctx, messages[i], result.Fate)
		if !j.outcome.Unsent {
			r.departed.note(messages[i])
		}
		if result.Fate == Sent || result.Fate == Handed {
			ended = append(ended, j)
		} else {
			waiting = append(waiting, j)
		}
		if result.Fate != Unreached {
			more = claim.More
		} else if result.Err != nil {
			err = unreachedError{result.Err}
		}
	}
	// The relay's context does not apply: sent messages are recorded even when the relay is stopping.
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.config.Lock/3)
	defer cancel()
	unrecorded := cmp.Or(r.note(settling, claim.Token, ended), r.note(settling, claim.Token, waiting))
	return more && unrecorded == nil, errors.Join(err, unrecorded)
}

// claimAtStop is how long a claim may go on after the end of the relay's context.
const claimAtStop = 2 * time.Second

// claim calls Table.Claim. A database that hangs costs a third of the lock, and not the relay. The end of the relay
// does not break a claim off: the database may commit the claim anyway, and nobody would release its messages. While
// the receiver takes nothing, the claim is for no message, and only asks the database.
func (r *Relay) claim(ctx context.Context) (sql.Claim, error) {
	request := sql.ClaimRequest{
		Owner: r.config.Owner, Limit: max(1, r.config.Batch>>r.halvings), Bytes: max(1, r.config.Bytes>>r.halvings),
		Lock: r.config.Lock, Broker: r.config.Broker,
	}
	if sender, ok := r.config.Sender.(Readier); ok && sender.Ready() != nil {
		request.Limit = 0
	}
	asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.config.Lock/3)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(claimAtStop, cancel) })()
	return r.config.Table.Claim(asked, request)
}

// judgement is the result of a message and its next state in the table.
type judgement struct {
	Result
	name    string
	outcome sql.Outcome
}

// note records the fates of messages. A message that cannot be recorded, such as one whose row a foreign transaction
// holds, stops no other: each half is tried by itself.
func (r *Relay) note(ctx context.Context, token string, all []judgement) error {
	if len(all) == 0 {
		return nil
	}
	outcomes := make([]sql.Outcome, len(all))
	for i, j := range all {
		outcomes[i] = j.outcome
	}
	held, err := r.config.Table.Release(ctx, token, outcomes)
	if err != nil && len(all) > 1 && ctx.Err() == nil {
		half := len(all) / 2
		return cmp.Or(r.note(ctx, token, all[:half]), r.note(ctx, token, all[half:]))
	}
	if held > 0 { // otherwise its lock has ended, and another relay judges
		r.report(all)
	}
	if lost := len(all) - int(held); lost > 0 && err == nil {
		r.config.Logger.Debug("messages were let go, or claimed by another, before they were released", "messages", lost)
	}
	return err
}

// send calls the sender for two thirds of the lock, counted from before the claim, so that the fates are recorded
// within the lock. A longer lock counts from later.
func (r *Relay) send(ctx context.Context, messages []sql.Queued, claimed time.Time) (results []Result) {
	if len(messages) == 0 {
		return nil
	}
	ctx, cancel := context.WithDeadline(ctx, claimed.Add(r.config.Lock*2/3))
	defer cancel()
	if panicked := lifecycle.Recovered(func() { results = r.config.Sender.Send(ctx, messages) }); panicked != nil {
		results = make([]Result, len(messages))
		for i := range results {
			results[i] = Result{Fate: Refused, Err: fmt.Errorf("the sender panicked: %v", panicked.Value)}
		}
	}
	return results
}

// outcomeOf returns the next state of a message after a result.
func (r *Relay) outcomeOf(q sql.Queued, result Result) sql.Outcome {
	o := sql.Outcome{ID: q.Message.ID, Shard: q.Shard, State: sql.StateWaiting}
	if result.Err != nil {
		o.Error = result.Err.Error()
	}
	switch result.Fate {
	case Sent:
		o.State = sql.StateSent
	case Handed:
		o.State = sql.StateHanded
		o.In = min(max(r.config.Again, q.Age.Round(r.config.Again)), longest)
	case Early:
		o.In, o.Unsent = result.In, true
	case Refused:
		o.Refused = true
		o.In = r.delay(q.Attempts)
		if result.Final || q.Attempts+1 >= r.config.MaxAttempts {
			o.State = sql.StateFailed
		}
	default:
		o.In, o.Unsent = r.config.Interval, result.Unsent
	}
	return o
}

// purge removes old rows once per PurgeInterval until the context ends, beside the relay, as there may be many rows.
func (r *Relay) purge(ctx context.Context) {
	for backoff.Sleep(ctx, r.config.PurgeInterval) == nil {
		removed, err := r.config.Table.Purge(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			r.config.Logger.Warn("old rows could not be removed", "cause", err)
		case removed > 0:
			r.config.Logger.Info("old rows were removed", "rows", removed)
		}
	}
}
