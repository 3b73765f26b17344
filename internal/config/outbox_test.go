package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/test/must"
)

func TestOutboxesOfEverySource(t *testing.T) {
	t.Parallel()
	c, err := config.Load(config.Sources{
		File: write(t, `
outbox:
  shop: {dsn: "postgres://u:secret@a,b:2/shop?sslmode=disable", producer: orders, poll: 1h, workers: 3}
  EU.west-1: {dsn_file: `+secret(t, "mysql://u:secret@h/eu\n")+`, producer: orders.eu, table: app.outbox_2, workers: 2}
`),
		Env: []string{
			"MSGHANDLER_OUTBOX_EU_WEST_1_SHARDS=16", "MSGHANDLER_OUTBOX_STOCK_DSN=mariadb://h/stock",
			"MSGHANDLER_OUTBOX_STOCK_PRODUCER=stock",
		},
		Flags: map[string]string{"outbox.socket.dsn": "postgres:///d?host=/run/postgresql", "outbox.socket.producer": "s"},
	})
	must.Succeed(t, err)
	with := func(change func(o *config.Outbox)) config.Outbox {
		o := config.DefaultOutbox()
		change(&o)
		return o
	}
	want := map[string]config.Outbox{
		"shop": with(func(o *config.Outbox) {
			o.DSN, o.Producer = "postgres://u:secret@a,b:2/shop?sslmode=disable", "orders"
			o.Poll, o.Workers = time.Hour, 3
		}),
		"EU.west-1": with(func(o *config.Outbox) {
			o.DSN, o.Producer, o.Table, o.Workers, o.Shards = "mysql://u:secret@h/eu", "orders.eu", "app.outbox_2", 2, 16
		}),
		"stock":  with(func(o *config.Outbox) { o.DSN, o.Producer = "mariadb://h/stock", "stock" }),
		"socket": with(func(o *config.Outbox) { o.DSN, o.Producer = "postgres:///d?host=/run/postgresql", "s" }),
	}
	if diff := cmp.Diff(want, c.Outbox); diff != "" {
		t.Errorf("differs (-want +got):\n%s", diff)
	}
}

// TestWrongOutboxesAreNamed: each mistake is named by its key and remedy, and no password is shown.
func TestWrongOutboxesAreNamed(t *testing.T) {
	t.Parallel()
	const fine = `dsn: "postgres://h/d", producer: p`
	for file, want := range map[string]string{
		`dsn: "sqlite:file", producer: p`:                   "is not a URL of the scheme postgres or postgresql or mysql",
		`dsn: "postgres://u:hunter2@h:port/d", producer: p`: "cannot be read as a URL",
		`dsn: "postgres://u:hunter2@h", producer: p`:        "names no database",
		`dsn: "postgres://u:hunter2@h/a/b", producer: p`:    "names no database",
		`dsn: "postgres://u:hunter2@/d", producer: p`:       "has a host that is none",
		`dsn: "mysql://u:hunter2@a,b/d", producer: p`:       "names several hosts",
		`dsn: "mysql://u:hun/ter2@h/d", producer: p`:        "has an @ behind its host",
		`producer: p`:                     "outbox.shop.dsn is missing: set outbox.shop.dsn or",
		`dsn: "postgres://u:hunter2@h/d"`: "outbox.shop.producer is missing",
		`dsn: "postgres://u:hunter2@h/d", dsn_file: f, producer: p`: "is set beside outbox.shop.dsn",
		fine + `}, z: {` + fine:                               "is that of outbox.shop: consumers take two rows",
		fine + `, producer: "a b"`:                            "stands twice",
		`dsn: "postgres://h/d", producer: "a b"`:              "names no producer",
		fine + `, table: "a.b.c"`:                             "is not a plain name",
		fine + `, table: "1a"`:                                "is not a plain name",
		fine + `, table: "a-b"`:                               "is not a plain name",
		fine + `, table: "a.` + strings.Repeat("t", 49) + `"`: "has 49 characters, more than 48",
		fine + `, poll: 1ms`:                                  "is outside 50ms to 1h",
		fine + `, workers: 0`:                                 "is outside 1 to 64",
		fine + `, dialect: mysql`:                             "there are outbox.NAME.dsn",
	} {
		_, err := config.Load(config.Sources{File: write(t, "outbox: {shop: {"+file+"}}\n")})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
