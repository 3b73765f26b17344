package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/test/servers"
)

func TestFailuresAreLoggedOncePerBatch(t *testing.T) {
	t.Parallel()
	db := openDB(t, "sqlite", second(sqlite(t)))
	s := table(t, db, sqlmarker.SQLite)
	to := &sent{fate: func(sqlmarker.Queued) outbox.Result {
		return outbox.Result{Fate: outbox.Refused, Err: errors.New("no such queue")}
	}}
	commit(t, db, s, numbered(25)...)
	var text bytes.Buffer
	r := relay(t, s, to, func(c *outbox.Config) {
		c.MaxAttempts, c.Logger = 1, slog.New(slog.NewTextHandler(&text, nil))
	})
	if _, err := r.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	said := text.String()
	for _, part := range []string{"messages=25", "Failures", "Retry", "no such queue", "order-"} {
		if !strings.Contains(said, part) {
			t.Errorf("%q is not in %s", part, said)
		}
	}
	if n := strings.Count(said, "level=ERROR"); n != 1 {
		t.Errorf("%d lines:\n%s", n, said)
	}
	failures, err := s.Failures(t.Context(), 100)
	if err != nil || len(failures) != 25 {
		t.Fatalf("%d failures, %v", len(failures), err)
	}
	to.fate = nil
	ids := make([]string, len(failures))
	for i, f := range failures {
		ids[i] = f.ID
	}
	if n, err := s.Retry(t.Context(), ids...); n != 25 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := r.Pass(t.Context()); err != nil || counts(t, s).Sent != 25 {
		t.Errorf("after the retry: %v, %+v", err, counts(t, s))
	}
}

// Messages that cannot be sent have a fixed log text, in the language of the relay.
func TestSendingFailedIsInRelaysLanguage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fate           outbox.Fate
		language, want string
	}{
		{outbox.Refused, "", `msg="sending failed; committed messages were refused up to the limit`},
		{outbox.Refused, "zh", "msg=消息发送失败 "},
		{outbox.Unreached, "", `msg="sending failed; the outbox could not be relayed`},
		{outbox.Unreached, "zh", "msg=消息发送失败 "},
	} {
		t.Run(fmt.Sprint(c.fate, " ", c.language), func(t *testing.T) {
			t.Parallel()
			db := openDB(t, "sqlite", second(sqlite(t)))
			s, log := table(t, db, sqlmarker.SQLite), &logged{}
			to := &sent{fate: func(sqlmarker.Queued) outbox.Result {
				return outbox.Result{Fate: c.fate, Err: errors.New("no such queue")}
			}}
			commit(t, db, s, "1")
			run(t, relay(t, s, to, func(config *outbox.Config) {
				config.MaxAttempts, config.Language, config.Logger = 1, c.language, slog.New(slog.NewTextHandler(log, nil))
			}))
			servers.Eventually(t, time.Minute, "the failure is logged", func() bool { return log.String() != "" })
			if said := log.String(); !strings.Contains(said, c.want) {
				t.Errorf("%q is not in %s", c.want, said)
			}
		})
	}
	_, err := outbox.New(outbox.Config{Table: &asked{}, Sender: &sent{}, Language: "de"})
	if err == nil || !strings.Contains(err.Error(), `Language: "de"`) {
		t.Errorf("a language without texts: %v", err)
	}
}

// logged keeps log lines.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Each message that leaves has a line with its id; the refused ones of an interval share a warning.
func TestPublishedMessagesAreLogged(t *testing.T) {
	t.Parallel()
	fates := map[string]outbox.Fate{"order-0": outbox.Sent, "order-1": outbox.Handed, "order-2": outbox.Refused}
	db := openDB(t, "sqlite", second(sqlite(t)))
	s := table(t, db, sqlmarker.SQLite)
	commit(t, db, s, numbered(3)...)
	to := &sent{fate: func(q sqlmarker.Queued) outbox.Result { return outbox.Result{Fate: fates[q.Message.ID]} }}
	var text bytes.Buffer
	r := relay(t, s, to, func(c *outbox.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	if _, err := r.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`level=DEBUG msg="message published" message_id=orders/order-0 exchange=orders routing_key=order.paid claims=1`,
		`level=DEBUG msg="message handed to the coordinator" message_id=orders/order-1 ` +
			`exchange=orders routing_key=order.paid claims=1`,
	} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("no line %q in %s", line, &text)
		}
	}
	if strings.Count(text.String(), "order-2") != 1 ||
		!strings.Contains(text.String(), `level=WARN msg="rows refused; they are sent again`) {
		t.Errorf("a refused message has another line, or none: %s", &text)
	}
}

// uncounted is a table whose counts hang.
type uncounted struct{ outbox.Table }

func (uncounted) Backlog(ctx context.Context) (sqlmarker.Backlog, error) {
	<-ctx.Done()
	return sqlmarker.Backlog{}, ctx.Err()
}

// A database that hangs while the messages are counted stops no relay for long.
func TestHangingCountStopsNoRelay(t *testing.T) {
	t.Parallel()
	db := openDB(t, "sqlite", second(sqlite(t)))
	s := table(t, db, sqlmarker.SQLite)
	to := &sent{}
	to.fate = func(sqlmarker.Queued) outbox.Result { return outbox.Result{Fate: outbox.Sent} }
	r := relay(t, uncounted{s}, to, func(c *outbox.Config) {
		c.Observer, c.Lock, c.Interval = &noted{}, 3*time.Second, 100*time.Millisecond
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	commit(t, db, s, "1")
	left := func() bool {
		counts, err := s.Counts(t.Context())
		return err == nil && counts.Waiting == 0
	}
	servers.Eventually(t, time.Minute, "the first message is sent, and a count hangs", left)
	commit(t, db, s, "2")
	servers.Eventually(t, time.Minute, "the second message is sent", left)
}
