package sqloutbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/internal/app/brokers"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/sendloop"
	"github.com/msghandler/msghandler/internal/sqloutbox"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }

// site is a database with an outbox, and a broker with a queue "paid".
type site struct {
	t       *testing.T
	db      *sql.DB
	server  *servers.SQLServer
	dsn     string
	brokers map[string]sendloop.Broker
	channel *amqp.Channel
}

func onEach(t *testing.T, test func(s *site)) {
	t.Helper()
	for _, dialect := range []string{"postgresql", "mysql"} {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			test(newSite(t, dialect))
		})
	}
}

func newSite(t *testing.T, dialect string) *site {
	t.Helper()
	if dialect == "postgresql" {
		return newSiteOn(t, servers.PostgreSQL(t))
	}
	return newSiteOn(t, servers.MariaDB(t))
}

func newSiteOn(t *testing.T, d *servers.Database) *site {
	t.Helper()
	s := &site{t: t, server: d.Server, dsn: d.DSN}
	if d.Driver == "mysql" {
		s.dsn = "mariadb://" + strings.NewReplacer("tcp(", "", ")", "").Replace(d.DSN)
	}
	var err error
	s.db, err = sql.Open(d.Driver, d.DSN)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = s.db.Close() })
	must.Succeed(t, sqloutbox.Migrate(t.Context(), "shop", s.settings()))
	s.broker(servers.RabbitMQ(t).URL)
	return s
}

// broker connects a publisher, and a channel of the test's own. The broker's second name is events.
func (s *site) broker(url string) {
	s.t.Helper()
	publisher, err := brokers.Open(publish.Config{
		URL: url, ConfirmTimeout: 5 * time.Second, Window: 500, Logger: slog.New(slog.DiscardHandler),
	})
	must.Succeed(s.t, err)
	s.t.Cleanup(func() { _ = publisher.Close(context.Background()) })
	named := sendloop.Broker{Publisher: publisher}
	s.brokers = map[string]sendloop.Broker{"": named, "events": named}
	servers.Eventually(s.t, 20*time.Second, "the broker takes messages", func() bool { return publisher.Ready() == nil })
	conn, err := amqp.Dial(url)
	must.Succeed(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	s.channel, err = conn.Channel()
	must.Succeed(s.t, err)
	s.declare("paid")
}

func (s *site) declare(queue string) {
	s.t.Helper()
	if _, err := s.channel.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		s.t.Fatal(err)
	}
}

// unchecked removes rules of the table.
func (s *site) unchecked(rules ...string) {
	s.t.Helper()
	for _, rule := range rules {
		s.exec("ALTER TABLE msghandler_outbox DROP CONSTRAINT msghandler_outbox_" + rule)
	}
}

func (s *site) settings() config.Outbox {
	o := config.DefaultOutbox()
	o.DSN, o.Producer, o.Poll = s.dsn, "orders", 100*time.Millisecond
	return o
}

// relay relays until the test ends.
func (s *site) relay(change ...func(*sqloutbox.Config)) *relaying {
	s.t.Helper()
	r := &relaying{log: &servers.Log{}, metrics: prometheus.NewRegistry()}
	c := sqloutbox.Config{
		Name: "shop", Settings: s.settings(), Present: func() string { return s.dsn }, Brokers: s.brokers,
		MaxBody: 1000, Instance: "test", Metrics: r.metrics,
		Traffic: uncounted{}, Forbidden: func(string, string, string) error { return nil },
		Send: config.Send{
			Backoff: []time.Duration{20 * time.Millisecond}, ConfirmTimeout: 5 * time.Second, Lease: 10 * time.Second,
		},
		Logger: slog.New(slog.NewTextHandler(r.log, nil)),
	}
	for _, f := range change {
		f(&c)
	}
	var err error
	r.Outbox, err = sqloutbox.Open(context.Background(), c)
	must.Succeed(s.t, err)
	s.t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			s.t.Error(err)
		}
		if s.t.Failed() {
			s.t.Log(r.log)
		}
	})
	return r
}

// relaying is an outbox with its log and its metrics.
type relaying struct {
	*sqloutbox.Outbox
	log     *servers.Log
	metrics *prometheus.Registry
}

// metric is the value of the only series of a name whose labels contain the text.
func (r *relaying) metric(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := r.metrics.Gather()
	must.Succeed(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && strings.Contains(fmt.Sprint(m.GetLabel()), label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return -1
}

func (s *site) exec(statement string) {
	s.t.Helper()
	if _, err := s.db.ExecContext(s.t.Context(), statement); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
}

// insert commits a row, of columns and their values.
func (s *site) insert(columns, values string) {
	s.t.Helper()
	s.exec("INSERT INTO msghandler_outbox (" + columns + ") VALUES (" + values + ")")
}

// take returns the next message of a queue.
func (s *site) take(queue string) (d amqp.Delivery) {
	s.t.Helper()
	servers.Eventually(s.t, 30*time.Second, "a message in "+queue, func() (found bool) {
		var err error
		d, found, err = s.channel.Get(queue, true)
		must.Succeed(s.t, err)
		return found
	})
	return d
}

// row is a row's state, and why the row was refused last.
func (s *site) row(id string) (state int, lastError string) {
	s.t.Helper()
	err := s.db.QueryRowContext(s.t.Context(),
		`SELECT state, COALESCE(last_error, '') FROM msghandler_outbox WHERE id = '`+id+`'`).Scan(&state, &lastError)
	must.Succeed(s.t, err)
	return state, lastError
}

func (s *site) count(where string) (n int) {
	s.t.Helper()
	err := s.db.QueryRowContext(s.t.Context(), `SELECT COUNT(*) FROM msghandler_outbox WHERE `+where).Scan(&n)
	must.Succeed(s.t, err)
	return n
}

var discard = slog.New(slog.DiscardHandler)

func sendloopBroker(publisher halfmsg.Publisher, deadLetters string) sendloop.Broker {
	return sendloop.Broker{Publisher: publisher, DeadLetterExchange: deadLetters}
}

// uncounted counts nothing.
type uncounted struct{}

func (uncounted) Published(string, string, halfmsg.Outcome, int) {}
func (uncounted) Failed(string, string, error)                   {}

// noCopies is a publisher whose copies of dead messages get no answer.
type noCopies struct{ halfmsg.Publisher }

func (p *noCopies) Publish(
	ctx context.Context, batch []halfmsg.Publishing, answered func(places []int, results []halfmsg.PublishResult),
) {
	if batch[0].Exchange == "dead" {
		answered([]int{0}, []halfmsg.PublishResult{{Outcome: halfmsg.Unsure, Cause: errors.New("no confirm")}})
		return
	}
	p.Publisher.Publish(ctx, batch, answered)
}

// silent is a publisher that refuses what goes to the key "refused", and gets no answer for all else in its time.
type silent time.Duration

func (silent) Ready() error { return nil }

func (s silent) Publish(
	ctx context.Context, batch []halfmsg.Publishing, answered func(places []int, results []halfmsg.PublishResult),
) {
	answer := time.After(time.Duration(s))
	late := ctx.Err()
	for i := range batch {
		result := halfmsg.PublishResult{Outcome: halfmsg.Refused, Cause: errors.New("no such queue")}
		switch {
		case late != nil:
			result = halfmsg.PublishResult{Outcome: halfmsg.Unsent, Cause: late}
		case batch[i].Exchange != "" || batch[i].RoutingKey != "refused":
			<-answer
			answer = time.After(0)
			result = halfmsg.PublishResult{Outcome: halfmsg.Unsure, Cause: errors.New("no confirm")}
		}
		answered([]int{i}, []halfmsg.PublishResult{result})
	}
}
