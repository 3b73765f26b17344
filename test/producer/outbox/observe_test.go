package outbox_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
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
