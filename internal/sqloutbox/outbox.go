// Package sqloutbox relays messages of plain SQL: a service inserts a row into the outbox of its own database, in its
// own transaction, and the coordinator publishes the row. The service needs no SDK, no port and no call.
//
// The relay is that of package producer/outbox, with its claims, locks and states. So several coordinators, and relays
// of the SDK, may share a table. Rows are published through the coordinator's own publishers.
package sqloutbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/loglimit"
	"github.com/msghandler/msghandler/internal/sendloop"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/prometheus/outboxmetrics"
)

// Config configures the outbox of one database. Every field without a default is required.
type Config struct {
	// Name is the NAME of the keys outbox.NAME.
	Name     string
	Settings config.Outbox
	// Present is the DSN of now, which each connection uses.
	Present func() string
	// Send has the backoff after a refusal, and how long a broker may take to answer.
	Send config.Send
	// MaxBody is the longest body, in bytes.
	MaxBody int
	// Batch is how many messages are claimed and published together, at most. Default 200.
	Batch int
	// Forbidden says why the producer of a row may not send it now; nil: it may.
	Forbidden func(broker, exchange, routingKey string) error
	// Brokers are the brokers by name, with "" for the default broker.
	Brokers map[string]sendloop.Broker
	// Instance names the coordinator in claims.
	Instance string
	// Open opens the database, which is PostgreSQL. Nil: by the driver of the DSN.
	Open func(dsn string) *sql.DB
	// Handshake gets the state of TLS of each connection to the database.
	Handshake Handshakes
	// Language is the language of the fixed log texts.
	Language string
	// Traffic counts publishings by exchange, beside those of half messages.
	Traffic Traffic
	Metrics prometheus.Registerer
	Logger  *slog.Logger
}

// Traffic counts what brokers answer. The methods must not block.
type Traffic interface {
	// Published tells how many messages to an exchange of a broker had an outcome.
	Published(broker, exchange string, outcome halfmsg.Outcome, messages int)
	// Failed tells why a message to an exchange was not acknowledged.
	Failed(broker, exchange string, cause error)
}

// Outbox relays the outbox of one database.
type Outbox struct {
	config   Config
	database *database
	tables   []*sqlmarker.Outbox
	relays   []*outbox.Relay
	// failures gathers the log lines about messages.
	failures *loglimit.Gatherer
	// trouble is the latest failure of the database; nil while the database answers.
	trouble atomic.Pointer[error]
	// held is the number of waiting rows whose broker is away.
	held prometheus.Gauge
	work lifecycle.Group
	end  context.CancelFunc
}

// errNotAsked is the state of a database before the first answer.
var errNotAsked = errors.New("the database has not answered yet")

// Open starts to relay, until the context ends or Close is called. The database may be away: relays retry. An error is
// about the configuration.
func Open(ctx context.Context, config Config) (*Outbox, error) {
	o := &Outbox{config: config}
	o.trouble.Store(&errNotAsked)
	o.config.Logger = config.Logger.With("database", config.Name)
	o.failures = loglimit.NewGatherer(o.config.Logger)
	var err error
	if config.Open != nil {
		o.database = &database{
			DB: config.Open(config.Present()), dialect: sqlmarker.PostgreSQL, reach: dialTimeout,
		}
	} else if o.database, err = open(config.Name, config.Present, config.Handshake); err != nil {
		return nil, err
	}
	o.database.limit(2*config.Settings.Workers*len(config.Brokers) + 1)
	if err := o.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("outbox.%s: %w", config.Name, err), o.database.Close())
	}
	ctx, o.end = context.WithCancel(ctx)
	for _, relay := range o.relays {
		o.work.Go(func() { relay.Run(ctx) })
	}
	if o.database.listen != nil {
		o.work.Go(func() { o.listen(ctx) })
	}
	return o, nil
}

const usualBatch = 200

// build makes relays for each broker, so that none waits for the messages of another: one for each worker. Only the
// first relay counts and purges the table.
func (o *Outbox) build() error {
	observer, err := o.observer()
	if err != nil {
		return err
	}
	for _, broker := range slices.Sorted(maps.Keys(o.config.Brokers)) {
		for worker := range o.config.Settings.Workers {
			if err := o.addRelay(observer, broker, worker); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *Outbox) addRelay(observer outbox.Observer, broker string, worker int) error {
	settings := o.config.Settings
	table, err := sqlmarker.NewOutbox(sqlmarker.OutboxConfig{
		DB: o.database.DB, Dialect: o.database.dialect, Producer: settings.Producer, Table: settings.Table,
		Shards: settings.Shards, MaxBody: o.config.MaxBody, Logger: o.config.Logger,
	})
	if err != nil {
		return err
	}
	c := outbox.Config{
		Table: &watchedTable{table, o}, Sender: newSender(o.config, broker, o.failures), Broker: broker,
		Owner: fmt.Sprintf("%s/%s/%d", o.config.Instance, broker, worker),
		Batch: cmp.Or(o.config.Batch, usualBatch), Interval: settings.Poll, Lock: o.lock(broker),
		Backoff: o.config.Send.Backoff, MaxAttempts: len(o.config.Send.Backoff) + 1,
		Observer: observer, Logger: o.config.Logger, Language: o.config.Language,
	}
	if len(o.relays) > 0 {
		c.CountInterval, c.PurgeInterval = never, never
	}
	relay, err := outbox.New(c)
	if err != nil {
		return err
	}
	o.tables, o.relays = append(o.tables, table), append(o.relays, relay)
	return nil
}

// never is a time that is longer than a process lives.
const never = 100 * 365 * 24 * time.Hour

// lock is how long a claim lasts. A relay loads and sends for two thirds of its lock. Those last longer than the broker
// may take to answer for messages, and then for copies of dead ones.
func (o *Outbox) lock(broker string) time.Duration {
	answers := 4 * o.config.Send.ConfirmTimeout
	if o.config.Brokers[broker].DeadLetterExchange != "" {
		answers = 6 * o.config.Send.ConfirmTimeout
	}
	return max(o.config.Send.Lease, answers)
}

// observer exports the relay's metrics with the name of the database.
func (o *Outbox) observer() (outbox.Observer, error) {
	to := prometheus.WrapRegistererWith(prometheus.Labels{"database": o.config.Name}, o.config.Metrics)
	up := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "msghandler_outbox_up", Help: "Whether the database of the outbox answers, and has the table.",
	}, func() float64 {
		if o.Check() != nil {
			return 0
		}
		return 1
	})
	o.held = newHeld(o.config.Settings.Producer)
	if err := errors.Join(to.Register(up), to.Register(o.held)); err != nil {
		return nil, err
	}
	return outboxmetrics.New(to, o.config.Settings.Producer)
}

// Check says why rows are not relayed; nil while the database answers.
func (o *Outbox) Check() error {
	if err := *o.trouble.Load(); err != nil {
		return fmt.Errorf("outbox.%s: %w", o.config.Name, err)
	}
	return nil
}

// note keeps the result of a statement as the state of the database.
func (o *Outbox) note(err error) {
	if o.database.dialect.Traits().Missing(err) {
		err = fmt.Errorf("%w; run: msghandler outbox migrate --database %s", err, o.config.Name)
	}
	o.trouble.Store(&err)
}

// wake lets every relay look at the table at once.
func (o *Outbox) wake() {
	for _, table := range o.tables {
		table.Wake()
	}
}

// Close ends the relays, and waits until what they hold is settled, or the context ends.
func (o *Outbox) Close(ctx context.Context) error {
	o.end()
	defer o.failures.Flush()
	if err := o.work.Wait(ctx); err != nil {
		return fmt.Errorf("outbox.%s: messages are still being published; another relay takes them when their locks end: %w",
			o.config.Name, err)
	}
	return o.database.Close()
}

// CloseAll closes outboxes side by side.
func CloseAll(ctx context.Context, all []*Outbox) error {
	failures := make([]error, len(all))
	var closing sync.WaitGroup
	for i, o := range all {
		closing.Go(func() { failures[i] = o.Close(ctx) })
	}
	closing.Wait()
	return errors.Join(slices.DeleteFunc(failures, func(err error) bool { return err == nil })...)
}

// watchedTable notes whether the database answers.
type watchedTable struct {
	*sqlmarker.Outbox
	of *Outbox
}

// answerTime is how long a connected database may take to answer a claim before the database counts as not answering. A
// claim's own limit is far longer, as a busy database may answer late, and operators should not wait for it.
const answerTime = time.Second

// Claim implements outbox.Table.
func (t *watchedTable) Claim(ctx context.Context, request sqlmarker.ClaimRequest) (sqlmarker.Claim, error) {
	limit := t.of.database.reach + answerTime
	noted := make(chan struct{})
	late := time.AfterFunc(limit, func() {
		t.of.note(fmt.Errorf("claim: no answer within %v: %w", limit, context.DeadlineExceeded))
		close(noted)
	})
	claim, err := t.Outbox.Claim(ctx, request)
	if !late.Stop() {
		<-noted
	}
	t.of.note(err)
	return claim, err
}
