package peerstats_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peerstats"
)

func TestQuantilesAreWithinAnEighth(t *testing.T) {
	t.Parallel()
	var l peerstats.Latency
	before := l.Counts()
	for ms := 1; ms <= 10_000; ms++ {
		l.Observe(time.Duration(ms) * time.Millisecond)
	}
	counted := l.Counts().Since(before)
	for q, want := range map[float64]time.Duration{
		.5: 5 * time.Second, .99: 9900 * time.Millisecond,
		.01: 100 * time.Millisecond,
	} {
		got, ok := counted.Quantile(q)
		if off := float64(got-want) / float64(want); !ok || off < -.13 || off > .13 {
			t.Errorf("quantile %v is %v, want about %v", q, got, want)
		}
	}
	if counted.Total() != 10_000 {
		t.Errorf("counted %d", counted.Total())
	}
	if _, ok := before.Quantile(.5); ok {
		t.Error("a quantile of nothing")
	}
	for _, extreme := range []time.Duration{-1, 0, 1, 100 * 24 * time.Hour} {
		l.Observe(extreme)
	}
	if got, _ := l.Counts().Quantile(1); got < 19*time.Hour {
		t.Errorf("the longest is %v", got)
	}
}

func TestRegistryKeepsTheLastResults(t *testing.T) {
	t.Parallel()
	b := peerstats.New()
	b.Confirmed("orders", 2, map[string]halfmsg.Verdict{"1": halfmsg.VerdictUnknown, "2": halfmsg.VerdictCommitted},
		time.Second, nil)
	b.Confirmed("orders", 3, nil, time.Second, errors.New("refused"))
	b.Paused("orders", true)
	b.Published("", "shop", halfmsg.Acked, 5)
	b.Published("", "shop", halfmsg.Refused, 2)
	b.Failed("", "shop", errors.New("no exchange"))
	p, e := b.Producers()[0], b.Exchanges()[0]
	if p.Name != "orders" || p.Paused != 1 || p.Verdict != halfmsg.VerdictUnknown || p.Failure != "refused" {
		t.Errorf("got %+v", p)
	}
	if p.Answered != 1 || p.Unreached != 1 || p.Unreachable != 3 ||
		p.Verdicts != [halfmsg.VerdictUnavailable + 1]int64{0, 1, 1, 0} {
		t.Errorf("counted %+v", p)
	}
	if e.Name != "shop" || e.Acked() != 5 || e.Failed() != 2 || e.Failure != "no exchange" {
		t.Errorf("got %+v", e)
	}
	if n := b.Acked(); n != 5 {
		t.Errorf("%d are acknowledged", n)
	}
}

func TestRegistryIsBounded(t *testing.T) {
	t.Parallel()
	b := peerstats.New()
	for i := range 10_000 {
		b.Published("", fmt.Sprint(i), halfmsg.Acked, 1)
		b.Paused(fmt.Sprint(i), true)
	}
	if n, m := len(b.Exchanges()), len(b.Producers()); n != peerstats.MaxNamed+1 || m != peerstats.MaxNamed+1 {
		t.Errorf("remembers %d exchanges and %d producers", n, m)
	}
	others := b.Exchanges()[peerstats.MaxNamed]
	if others.Name != peerstats.Other || others.Acked() != 10_000-peerstats.MaxNamed {
		t.Errorf("got %+v", others)
	}
}
