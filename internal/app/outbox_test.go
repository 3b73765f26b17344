package app_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/sqloutbox"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// withOutbox is a configuration with an outbox.
func withOutbox(dsn string) func(*config.Config) {
	return func(c *config.Config) {
		o := config.DefaultOutbox()
		o.DSN, o.Producer, o.Poll = dsn, "orders", 100*time.Millisecond
		c.Outbox = map[string]config.Outbox{"shop": o}
	}
}

// A database that is away degrades the coordinator, which serves everything else, and says why.
func TestCoordinatorServesWithoutItsOutboxDatabase(t *testing.T) {
	t.Parallel()
	r := start(t, settings(withOutbox("mysql://u:hunter2@127.0.0.1:1/d")))
	servers.Eventually(t, 20*time.Second, "the coordinator is ready, and degraded by the outbox", func() bool {
		ready, body := r.ready()
		return ready && strings.Contains(body, `"degraded": true`) &&
			strings.Contains(body, "outbox.shop: claim messages: dial")
	})
	if page := metrics(t, r); !strings.Contains(page, `msghandler_outbox_up{database="shop"} 0`) {
		t.Error("the metrics say nothing")
	}
	if strings.Contains(r.log.String(), "hunter2") {
		t.Error("the log shows a password")
	}
}

func TestCoordinatorRelaysPlainSQL(t *testing.T) {
	t.Parallel()
	d := servers.PostgreSQL(t)
	c := settings(withOutbox(d.DSN))
	must.Succeed(t, sqloutbox.Migrate(t.Context(), "shop", c.Outbox["shop"]))
	insertRow(t, d, `INSERT INTO msghandler_outbox (producer, id, routing_key) VALUES ('stock', '1', 'paid')`)
	r := start(t, c)
	r.awaitReady(t)
	arrived := r.queue(t, "paid")
	insertRow(t, d, `INSERT INTO msghandler_outbox (id, routing_key) VALUES ('1001', 'paid')`)
	select {
	case delivery := <-arrived:
		if delivery.MessageId != "1001" || delivery.AppId != "orders" {
			t.Errorf("%+v", delivery)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("nothing arrives\n%s", r.log)
	}
	insertRow(t, d, `INSERT INTO msghandler_outbox (id, routing_key) VALUES ('1002', 'nobody')`)
	for _, want := range []string{
		`msghandler_outbox_relayed_total{database="shop",fate="sent",producer="orders"} 1`,
		`msghandler_publishes_total{broker="(default)",exchange="(default)",outcome="acked"} 1`,
		`msghandler_publishes_total{broker="(default)",exchange="(default)",outcome="refused"} 1`,
		`msghandler_outbox_unrelayed_messages{database="shop",producer="stock"} 1`,
	} {
		servers.Eventually(t, 20*time.Second, "the metrics hold "+want, func() bool {
			return strings.Contains(metrics(t, r), want)
		})
	}
	what := r.found(t)["outbox-unrelayed"]
	if !strings.Contains(what, `producer "stock" in the table of outbox.shop: 1,`) {
		t.Errorf("found is %q", what)
	}
}

func TestWrongDSNIsMistakeOfSettings(t *testing.T) {
	t.Parallel()
	a, err := app.New(t.Context(), onEmbedded(t, settings(withOutbox("postgres://u:hunter2@h/d?sslmode=hunter2"))),
		app.Deps{Logger: slog.New(slog.DiscardHandler)})
	must.Succeed(t, err)
	err = a.Run(context.Background())
	if wrong := (app.SettingsError{}); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "outbox.shop.dsn") ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
}

func insertRow(t *testing.T, d *servers.Database, statement string) {
	t.Helper()
	db, err := sql.Open(d.Driver, d.DSN)
	must.Succeed(t, err)
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// metrics is the page /metrics.
func metrics(t *testing.T, r *running) string {
	t.Helper()
	answer, err := http.Get("http://" + r.HTTPAddr() + "/metrics")
	must.Succeed(t, err)
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	must.Succeed(t, err)
	return string(page)
}
