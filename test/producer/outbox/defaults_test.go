package outbox_test

import (
	"context"
	"testing"
	"time"

	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
)

// asked is a table that records the arguments of a relay's calls. Its only message has been refused before, refused
// times.
type asked struct {
	refused  int
	limit    int
	lock     time.Duration
	outcomes []sqlmarker.Outcome
}

func (a *asked) Claim(_ context.Context, request sqlmarker.ClaimRequest) (sqlmarker.Claim, error) {
	a.limit, a.lock = request.Limit, request.Lock
	return sqlmarker.Claim{Messages: []sqlmarker.Claimed{{ID: "1"}}}, nil
}

func (a *asked) Load(context.Context, string, []sqlmarker.Claimed) ([]sqlmarker.Queued, error) {
	return []sqlmarker.Queued{{Message: message("1"), Attempts: a.refused}}, nil
}

func (a *asked) Release(_ context.Context, _ string, outcomes []sqlmarker.Outcome) (int64, error) {
	a.outcomes = outcomes
	return int64(len(outcomes)), nil
}

func (*asked) Purge(context.Context) (int64, error)               { return 0, nil }
func (*asked) Backlog(context.Context) (sqlmarker.Backlog, error) { return sqlmarker.Backlog{}, nil }
func (*asked) Queued() <-chan struct{}                            { return nil }

// The defaults are part of the guide.
func TestRelayDefaults(t *testing.T) {
	t.Parallel()
	table, fate := &asked{}, outbox.Refused
	to := &sent{fate: func(sqlmarker.Queued) outbox.Result { return outbox.Result{Fate: fate} }}
	r := relay(t, table, to, nil)
	pass := func() sqlmarker.Outcome {
		t.Helper()
		if _, err := r.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		return table.outcomes[0]
	}
	for refused, most := range []time.Duration{
		5 * time.Second, 30 * time.Second, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute,
		32 * time.Minute,
		time.Hour, time.Hour,
	} {
		table.refused = refused
		if o := pass(); o.State != sqlmarker.StateWaiting || !o.Refused || o.In > most || o.In < most/2 {
			t.Errorf("after %d refusals %+v, want a pause of %v at most", refused+1, o, most)
		}
	}
	table.refused = 9
	if o := pass(); o.State != sqlmarker.StateFailed {
		t.Errorf("after 10 refusals %+v", o)
	}
	fate = outbox.Unreached
	if o := pass(); o.In != 5*time.Second || o.Refused {
		t.Errorf("out of reach: %+v, want the interval of 5 s", o)
	}
	if table.limit != 200 || table.lock != 30*time.Second {
		t.Errorf("a claim takes %d for %v", table.limit, table.lock)
	}
}

// The retries by name are part of the guide.
func TestRetriesByName(t *testing.T) {
	t.Parallel()
	const second, minute = time.Second, time.Minute
	for name, test := range map[string]struct {
		retries outbox.Retries
		exact   bool
		pauses  []time.Duration
	}{
		"three": {outbox.RetriesThree, true, []time.Duration{5 * second, 30 * second, 2 * minute}},
		"five":  {outbox.RetriesFive, false, []time.Duration{5 * second, 30 * second, 2 * minute, 4 * minute, 8 * minute}},
	} {
		table := &asked{}
		to := &sent{fate: func(sqlmarker.Queued) outbox.Result { return outbox.Result{Fate: outbox.Refused} }}
		r := relay(t, table, to, func(c *outbox.Config) { c.Retries = test.retries })
		for refused, pause := range append(test.pauses, 0) {
			table.refused = refused
			for range 20 {
				if _, err := r.Pass(t.Context()); err != nil {
					t.Fatal(err)
				}
				o := table.outcomes[0]
				switch {
				case pause == 0:
					if o.State != sqlmarker.StateFailed {
						t.Errorf("%s: after %d refusals %+v, want failed", name, refused+1, o)
					}
				case o.State != sqlmarker.StateWaiting || o.In > pause || o.In < pause/2 || test.exact && o.In != pause:
					t.Errorf("%s: after %d refusals %+v, want a pause of %v", name, refused+1, o, pause)
				}
			}
		}
	}
}
