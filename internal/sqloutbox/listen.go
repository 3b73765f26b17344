package sqloutbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/msghandler/msghandler/internal/ground/backoff"
)

// listenPauses are the pauses between attempts to receive notifications.
var listenPauses = backoff.Exponential(500*time.Millisecond, 30*time.Second)

// listen wakes the relays at each notification of the table's trigger, until the context ends. Notifications are a
// shortcut: what they miss, the next poll finds. Through a pooler in transaction mode LISTEN succeeds, and nothing
// arrives.
func (o *Outbox) listen(ctx context.Context) {
	told := ""
	for failures := 0; ctx.Err() == nil; failures++ {
		heard, err := o.receive(ctx)
		if ctx.Err() != nil {
			return
		}
		if heard {
			failures = 0
		}
		if failures == 0 || err.Error() != told {
			told = err.Error()
			o.config.Logger.Warn("notifications of the database cannot be received; rows wait for the next poll; "+
				"the coordinator listens again", "cause", err)
		}
		_ = backoff.Sleep(ctx, listenPauses.Delay(failures)) // the loop ends with the context
	}
}

// proofTimeout is how long a notification of the listener's own may take to arrive.
const proofTimeout = 10 * time.Second

var errUnproven = fmt.Errorf("a notification of the coordinator's own did not arrive within %v, as through a pooler "+
	"in transaction mode; set outbox.NAME.poll to how long a row may wait, or reach the database without the pooler",
	proofTimeout)

// receive listens on a connection of its own until the connection breaks. heard says that notifications arrive.
func (o *Outbox) receive(ctx context.Context) (heard bool, err error) {
	at, err := o.database.listen()
	if err != nil {
		return false, err
	}
	conn, err := pgx.ConnectConfig(ctx, at)
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
	if err := o.prove(ctx, conn); err != nil {
		return false, err
	}
	for {
		o.wake() // the first time for what was committed before the LISTEN
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return true, err
		}
	}
}

// prove notifies from another connection, and waits for the notification.
func (o *Outbox) prove(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	if _, err := o.database.ExecContext(ctx, "SELECT pg_notify($1, '')", channel(o.config.Settings.Table)); err != nil {
		return err
	}
	_, err := conn.WaitForNotification(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return errUnproven
	}
	return err
}

// channel is where the table's trigger notifies: the table's name without its schema, in the case of the DDL.
func channel(table string) string { return table[strings.LastIndex(table, ".")+1:] }
