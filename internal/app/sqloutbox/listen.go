package sqloutbox

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/msghandler/msghandler/internal/ground/backoff"
)

// listenPauses are the pauses between attempts to receive notifications.
var listenPauses = backoff.Exponential(500*time.Millisecond, 30*time.Second)

// listen wakes the relays at each notification of the table's trigger, until the context ends. Notifications are a
// shortcut: what they miss, the next poll finds.
func (o *Outbox) listen(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; failures++ {
		heard, err := o.receive(ctx)
		if ctx.Err() != nil {
			return
		}
		if heard {
			failures = 0
		}
		if failures == 0 {
			o.config.Logger.Warn("notifications of the database cannot be received; rows wait for the next poll; "+
				"the coordinator listens again", "cause", err)
		}
		_ = backoff.Sleep(ctx, listenPauses.Delay(failures)) // the loop ends with the context
	}
}

// receive listens on a connection of its own until the connection breaks. heard says that the database took the LISTEN.
func (o *Outbox) receive(ctx context.Context) (heard bool, err error) {
	conn, err := pgx.ConnectConfig(ctx, o.database.listen)
	if err != nil {
		if ctx.Err() == nil {
			o.note(err) // the next poll may be long in coming
		}
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // nothing is lost with the connection
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel(o.config.Settings.Table)}.Sanitize()); err != nil {
		return false, err
	}
	for {
		o.wake() // the first time for what was committed before the LISTEN
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return true, err
		}
	}
}

// channel is where the table's trigger notifies: the table's name without its schema, in the case of the DDL.
func channel(table string) string { return table[strings.LastIndex(table, ".")+1:] }
