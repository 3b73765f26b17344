package sqloutbox_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/sendloop"
	"github.com/msghandler/msghandler/internal/sqloutbox"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// hour is a time in which no poll comes.
func hour(c *sqloutbox.Config) { c.Settings.Poll = time.Hour }

func TestRowArrivesAsInserted(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *site) {
		s.relay()
		s.insert("id, routing_key, body, content_type, headers, broker, shard_id, event_type",
			`'1001', 'paid', '{"a":"\\"}', 'application/json', '{"tenant":"7"}', 'events', 5, 'PAID'`)
		d := s.take("paid")
		if d.MessageId != "1001" || d.AppId != "orders" || d.ContentType != "application/json" ||
			d.Headers["tenant"] != "7" || d.Headers["msghandler-attempt"] != int64(1) || d.Timestamp.IsZero() {
			s.t.Errorf("%+v", d)
		}
		s.insert("routing_key", "'paid'")
		if d := s.take("paid"); len(d.MessageId) != 36 || len(d.Body) != 0 {
			s.t.Errorf("of the shortest INSERT: %+v", d)
		}
		servers.Eventually(s.t, 10*time.Second, "both rows are sent", func() bool { return s.count("state = 3") == 2 })
	})
}

func TestBinaryBodyArrives(t *testing.T) {
	t.Parallel()
	s := newSite(t, "postgresql")
	s.relay()
	s.insert("routing_key, body_bytes", `'paid', '\x00ff'`)
	if d := s.take("paid"); string(d.Body) != "\x00\xff" {
		t.Errorf("%q", d.Body)
	}
}

func TestDelayedRowWaits(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *site) {
		r := s.relay()
		s.insert("id, routing_key, delay_ms", "'late', 'paid', 3600000")
		s.insert("id, routing_key", "'soon', 'paid'")
		if d := s.take("paid"); d.MessageId != "soon" {
			s.t.Errorf("%s came first", d.MessageId)
		}
		servers.Eventually(s.t, 10*time.Second, "the row waits for its delay", func() bool {
			return r.metric(s.t, "msghandler_outbox_relayed_total", "early") > 0
		})
		s.exec("UPDATE msghandler_outbox SET created_at = created_at - 7200000, due_at = 0 WHERE id = 'late'")
		d := s.take("paid")
		if d.MessageId != "late" || d.Headers["msghandler-attempt"] != int64(1) {
			s.t.Errorf("%+v", d)
		}
		if since := time.Since(d.Timestamp); since < 59*time.Minute || since > 61*time.Minute {
			s.t.Errorf("the message was due %v ago, want an hour", since)
		}
	})
}

// A table may lack the rules: MySQL before 8.0.16 has none.
func TestBadRowsFailAlone(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *site) {
		s.unchecked("id", "headers", "destination", "exchange", "delay")
		for id, row := range map[string][3]string{
			"two words":  {"routing_key", "'paid'", "id may hold only letters"},
			"json":       {"routing_key, headers", `'paid', '{"a"'`, "headers is no JSON object of texts"},
			"list":       {"routing_key, headers", `'paid', '[1]'`, "headers is no JSON object of texts"},
			"reserved":   {"routing_key, headers", `'paid', '{"x-death":"1"}'`, "are reserved"},
			"body":       {"routing_key, body", "'paid', '" + strings.Repeat("b", 1001) + "'", "body is 1001 bytes long"},
			"nowhere":    {"exchange", "''", "routing_key must not be empty"},
			"rabbitmq":   {"exchange", "'amq.topic'", "must not begin with amq."},
			"past":       {"routing_key, delay_ms", "'paid', -1", "delay_ms is -1"},
			"far":        {"routing_key, delay_ms", "'paid', 9000000000000000000", "delay_ms is 9"},
			"month":      {"routing_key, delay_ms", "'paid', 2700000000", "delay is 750h"},
			"unroutable": {"routing_key", "'nobody'", "312"},
		} {
			s.insert("id, "+row[0], "'"+id+"', "+row[1])
			defer func() {
				s.t.Helper()
				servers.Eventually(s.t, 20*time.Second, id+" has failed", func() bool {
					state, _ := s.row(id)
					return state == int(sqlmarker.StateFailed)
				})
				if _, why := s.row(id); !strings.Contains(why, row[2]) {
					s.t.Errorf("%s has failed with %q, want %q", id, why, row[2])
				}
			}()
		}
		s.insert("id, routing_key", "'good', 'paid'")
		r := s.relay()
		if d := s.take("paid"); d.MessageId != "good" {
			s.t.Errorf("%+v", d)
		}
		servers.Eventually(s.t, 20*time.Second, "all others are counted", func() bool {
			return r.metric(s.t, "msghandler_outbox_failed_total", `database`) == 11
		})
	})
}

// A row that can never be sent takes one attempt; a row that the broker refuses takes all of send.backoff.
func TestOnlyRefusalsOfBrokerAreRetried(t *testing.T) {
	t.Parallel()
	s := newSite(t, "postgresql")
	s.unchecked("destination")
	s.insert("id, exchange", "'invalid', ''")
	s.insert("id, routing_key", "'unroutable', 'nobody'")
	s.relay()
	servers.Eventually(t, 20*time.Second, "both have failed", func() bool { return s.count("state = 4") == 2 })
	if s.count("id = 'invalid' AND attempts = 1") != 1 || s.count("id = 'unroutable' AND attempts = 2") != 1 {
		t.Error("the attempts are others")
	}
}

// TestForbiddenRowWaitsForThePolicy has a policy that forbids an exchange until a row has met it.
func TestForbiddenRowWaitsForThePolicy(t *testing.T) {
	t.Parallel()
	s := newSite(t, "postgresql")
	s.insert("id, routing_key", "'1', 'paid'")
	met := make(chan struct{}, 1)
	s.relay(func(c *sqloutbox.Config) {
		c.Forbidden = func(broker, exchange, key string) error {
			select {
			case met <- struct{}{}:
				return fmt.Errorf("%q, %q, %q is forbidden", broker, exchange, key)
			default:
				return nil
			}
		}
	})
	if d := s.take("paid"); d.MessageId != "1" {
		t.Errorf("%+v", d)
	}
	servers.Eventually(t, 20*time.Second, "the row is sent after a refusal", func() bool {
		return s.count("id = '1' AND state = 3 AND attempts = 1") == 1
	})
}

func TestFailedRowReachesDeadLetterExchange(t *testing.T) {
	t.Parallel()
	s := newSite(t, "postgresql")
	must.Succeed(t, s.channel.ExchangeDeclare("dead", "fanout", true, false, false, false, nil))
	s.declare("graves")
	must.Succeed(t, s.channel.QueueBind("graves", "", "dead", false, nil))
	to := s.brokers[""]
	to.DeadLetterExchange = "dead"
	s.brokers[""] = to
	r := s.relay()
	s.insert("id, routing_key, body", "'1001', 'nobody', 'paid'")
	d := s.take("graves")
	if d.MessageId != "1001" || string(d.Body) != "paid" || d.Headers["msghandler-dead-attempts"] != "2" ||
		d.Headers["msghandler-origin-routing-key"] != "nobody" {
		t.Errorf("%+v", d)
	}
	const refused = `msg="rows refused; they are sent again after a pause`
	if said := r.log.String(); strings.Count(said, refused) != 1 || !strings.Contains(said, "message_ids=[orders/1001]") ||
		!strings.Contains(said, "NO_ROUTE") {
		t.Errorf("the first refusal is not in the log:\n%s", said)
	}
	servers.Eventually(t, 20*time.Second, "the row has failed", func() bool { return s.count("state = 4") == 1 })
	// As docs/howto/sql-outbox.md has it: the cause is fixed, and the row is sent again.
	s.declare("nobody")
	s.exec("UPDATE msghandler_outbox SET state = 1, attempts = 0, due_at = 0 WHERE producer = 'orders' AND state = 4 " +
		"AND id = '1001'")
	s.take("nobody")
}

// A queue that confirms no copy must not have the message published for ever.
func TestUnansweredCopyEndsItsRow(t *testing.T) {
	t.Parallel()
	s := newSite(t, "postgresql")
	s.brokers[""] = sendloopBroker(&noCopies{s.brokers[""].Publisher}, "dead")
	s.insert("id, routing_key", "'1001', 'nobody'")
	r := s.relay()
	servers.Eventually(t, 20*time.Second, "the row has failed", func() bool { return s.count("state = 4") == 1 })
	servers.Eventually(t, 20*time.Second, "the log names the copy", func() bool {
		return strings.Contains(r.log.String(), "dead-letter exchange did not answer for copies")
	})
}

// A silent row beside a dying one takes the time in which the broker may answer, and the silent copy takes it again.
func TestSilentRowKeepsNoneFromFailing(t *testing.T) {
	t.Parallel()
	s := newSite(t, "postgresql")
	const answer = time.Second
	s.brokers = map[string]sendloop.Broker{"": sendloopBroker(silent(answer), "dead")}
	s.exec("INSERT INTO msghandler_outbox (id, routing_key, attempts) VALUES ('1', 'silent', 0), ('2', 'refused', 1)")
	r := s.relay(func(c *sqloutbox.Config) { c.Send.ConfirmTimeout, c.Send.Lease = answer, answer })
	servers.Eventually(t, 20*time.Second, "the refused row has failed after a single publication", func() bool {
		if s.count("id = '2' AND claims > 1") > 0 {
			t.Fatal("the refused row is published again")
		}
		return s.count("id = '2' AND state = 4") == 1
	})
	servers.Eventually(t, 20*time.Second, "the log names the copy", func() bool {
		return strings.Contains(r.log.String(), "dead-letter exchange did not answer for copies")
	})
}

// With a poll of an hour only a notification brings the row, or the LISTEN after the connection was cut.
func TestCutListenerFindsWhatItMissed(t *testing.T) {
	t.Parallel()
	s := newSite(t, "postgresql")
	r := s.relay(hour)
	s.insert("id, routing_key", "'heard', 'paid'")
	s.take("paid")
	for i := range 3 {
		servers.Eventually(t, 20*time.Second, "the listener is there", func() bool {
			var cut int
			err := s.db.QueryRowContext(t.Context(), `SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE datname = current_database() AND query LIKE 'LISTEN%'`).Scan(&cut)
			must.Succeed(t, err)
			return cut > 0
		})
		id := fmt.Sprint("missed-", i)
		s.insert("id, routing_key", "'"+id+"', 'paid'")
		if d := s.take("paid"); d.MessageId != id {
			t.Errorf("%s came", d.MessageId)
		}
	}
	if !strings.Contains(r.log.String(), "the coordinator listens again") {
		t.Error("the log says nothing")
	}
}

func TestLostNotificationsAreFoundByPolling(t *testing.T) {
	t.Parallel()
	s := newSite(t, "postgresql")
	s.exec("DROP TRIGGER msghandler_outbox_notify ON msghandler_outbox")
	s.relay()
	s.insert("id, routing_key", "'1001', 'paid'")
	s.take("paid")
}

// The database is away at the start, comes, dies and comes again. MariaDB has no notifications, so its poll is short.
func TestDatabaseThatComesBackIsRelayed(t *testing.T) {
	t.Parallel()
	for name, private := range map[string]struct {
		start  func(testing.TB) *servers.Database
		change func(*sqloutbox.Config)
	}{
		"postgresql": {servers.PrivatePostgreSQL, hour},
		"mysql":      {servers.PrivateMariaDB, func(*sqloutbox.Config) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSiteOn(t, private.start(t))
			s.server.Kill(t)
			r := s.relay(private.change)
			for i := range 2 {
				servers.Eventually(t, 20*time.Second, "the check fails", func() bool {
					err := r.Check()
					return err != nil && strings.Contains(err.Error(), "outbox.shop: ") &&
						!strings.Contains(err.Error(), "not answered yet") &&
						r.metric(t, "msghandler_outbox_up", "shop") == 0
				})
				s.server.Start(t)
				servers.Eventually(t, 30*time.Second, "the check is well", func() bool { return r.Check() == nil })
				s.insert("id, routing_key", fmt.Sprintf("'%d', 'paid'", i))
				s.take("paid")
				if up := r.metric(t, "msghandler_outbox_up", "shop"); up != 1 {
					t.Errorf("up is %v", up)
				}
				s.server.Kill(t)
			}
			s.server.Start(t)
		})
	}
}

func TestMissingTableNamesTheCommand(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *site) {
		s.exec("DROP TABLE msghandler_outbox")
		r := s.relay()
		servers.Eventually(s.t, 20*time.Second, "the check names the command", func() bool {
			err := r.Check()
			return err != nil && strings.Contains(err.Error(), "msghandler outbox migrate --database shop")
		})
	})
}

// A relay of the SDK and two coordinators with several workers share a table: each row is sent once.
func TestSDKRelaySharesTheTable(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *site) {
		const rows = 600
		var values []string
		for i := range rows {
			values = append(values, fmt.Sprintf("('%04d', 'paid')", i))
		}
		s.exec("INSERT INTO msghandler_outbox (id, routing_key) VALUES " + strings.Join(values, ", "))
		few := func(c *sqloutbox.Config) { c.Settings.Workers, c.Batch = 2, 20 }
		s.relay(few)
		s.relay(few)
		bySDK := s.relayOfSDK()
		servers.Eventually(s.t, 30*time.Second, "all rows are sent", func() bool { return s.count("state = 3") == rows })
		seen := bySDK()
		for {
			d, more, err := s.channel.Get("paid", true)
			must.Succeed(s.t, err)
			if !more {
				break
			}
			seen[d.MessageId]++
		}
		if len(seen) != rows {
			s.t.Errorf("%d messages, want %d", len(seen), rows)
		}
		for id, n := range seen {
			if n != 1 {
				s.t.Errorf("%s was sent %d times", id, n)
			}
		}
	})
}

// relayOfSDK runs a relay of the SDK, and returns what says how often the relay has sent each row.
func (s *site) relayOfSDK() func() map[string]int {
	s.t.Helper()
	dialect := sqlmarker.PostgreSQL
	if strings.HasPrefix(s.dsn, "mariadb") {
		dialect = sqlmarker.MySQL
	}
	table, err := sqlmarker.NewOutbox(sqlmarker.OutboxConfig{DB: s.db, Dialect: dialect, Producer: "orders"})
	must.Succeed(s.t, err)
	to := &recorder{sent: map[string]int{}}
	relay, err := outbox.New(outbox.Config{Table: table, Sender: to, Batch: 20, Interval: 50 * time.Millisecond})
	must.Succeed(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { relay.Run(ctx) })
	stop := sync.OnceFunc(func() { cancel(); running.Wait() })
	s.t.Cleanup(stop)
	return func() map[string]int {
		stop()
		return to.sent
	}
}

// recorder is a sender that takes every message.
type recorder struct{ sent map[string]int }

func (r *recorder) Send(_ context.Context, messages []sqlmarker.Queued) []outbox.Result {
	results := make([]outbox.Result, len(messages))
	for i, q := range messages {
		r.sent[q.Message.ID]++
		results[i].Fate = outbox.Sent
	}
	return results
}

// After a clean stop no relay must wait for a lock's end.
func TestCloseSettlesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *site) {
		var values []string
		for i := range 2000 {
			values = append(values, fmt.Sprintf("('%04d', 'paid')", i))
		}
		s.exec("INSERT INTO msghandler_outbox (id, routing_key) VALUES " + strings.Join(values, ", "))
		r := s.relay(func(c *sqloutbox.Config) { c.Settings.Workers, c.Batch = 3, 50 })
		s.take("paid")
		must.Succeed(s.t, r.Close(s.t.Context()))
		if n := s.count("lock_until IS NOT NULL"); n > 0 {
			s.t.Errorf("%d rows are locked", n)
		}
	})
}

func TestDSNErrorsNameKeyNotPassword(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]config.Outbox{
		"outbox.shop.dsn has options that the driver does not take; see the parameters of libpq": {
			DSN: "postgres://u:hunter2@h/d?sslmode=hunter2",
		},
		"outbox.shop.dsn names a file that cannot be read: open /none: ": {
			DSN: "postgres://u:hunter2@h/d?sslmode=verify-full&sslrootcert=/none",
		},
		"outbox.shop.dsn has options that the driver does not take; see the parameters of go-sql": {
			DSN: "mysql://u:hunter2@h/d?parseTime=hunter2",
		},
		"outbox.shop.dsn is not a URL of the scheme":  {DSN: "u:hunter2@tcp(h)/d"},
		"outbox.shop.dsn names no database":           {DSN: "mariadb://u:hunter2@h"},
		"outbox.shop: outbox: Table: \"no table\" is": {DSN: "postgres://u:hunter2@h/d", Table: "no table"},
	} {
		o.Producer, o.Workers = "orders", 1
		_, err := sqloutbox.Open(t.Context(), sqloutbox.Config{
			Name: "shop", Settings: o, Present: func() string { return o.DSN },
			Brokers: map[string]sendloop.Broker{"": {}}, Metrics: prometheus.NewRegistry(), Logger: discard,
		})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
