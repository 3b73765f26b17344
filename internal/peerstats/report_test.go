package peerstats_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peerstats"
	"github.com/msghandler/msghandler/test/must"
)

// coordinator has the counts of a coordinator.
type coordinator struct {
	*peerstats.Registry
	meter peerstats.Meter
}

// report makes a report at a time.
func (c *coordinator) report(at time.Time) peerstats.Report {
	now := peerstats.Snapshot{At: at, Out: c.Acked(), Latency: c.Latency.Counts()}
	now.AddPeers(c.Producers(), nil, c.Exchanges())
	added, within := c.meter.Measure(now)
	return peerstats.NewReport(c.Producers(), c.Exchanges(), added, within)
}

// shared is a report as another coordinator reads it, by a clock that is a day ahead.
func shared(t *testing.T, r peerstats.Report) (read peerstats.Report) {
	t.Helper()
	text, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(text, &read)
	}
	must.Succeed(t, err)
	read.Shift(24 * time.Hour)
	for i, p := range read.Producers {
		if at := r.Producers[i].FailedAt; at.IsZero() != p.FailedAt.IsZero() {
			t.Errorf("the failure at %v is read as a failure at %v", at, p.FailedAt)
		}
	}
	read.Shift(-24 * time.Hour)
	return read
}

func TestSumsAddUpCoordinators(t *testing.T) {
	t.Parallel()
	began := time.Now()
	now := began.Add(10 * time.Second)
	here, there := &coordinator{Registry: peerstats.New()}, &coordinator{Registry: peerstats.New()}
	here.report(began)
	there.report(began)
	here.Stored("orders", 100)
	there.Stored("orders", 300)
	there.Stored("stock", 10)
	there.Confirmed("orders", 7, nil, time.Second, errors.New("connection refused"))
	there.Paused("orders", true)
	there.Paused("orders", true)
	here.Confirmed("orders", 1, map[string]halfmsg.Verdict{"1": halfmsg.VerdictUnknown}, 2*time.Second, nil)
	for _, c := range []*coordinator{here, there} {
		c.Published("", "shop", halfmsg.Acked, 50)
		c.Delivered("orders", 1)
	}
	there.Failed("", "shop", errors.New("no exchange"))
	third := &coordinator{Registry: peerstats.New()}
	sums := peerstats.Sum(here.report(now), shared(t, there.report(now)), third.report(now))

	orders, stock, shop := sums.Producers()[0], sums.Producers()[1], sums.Exchanges()[0]
	if orders.Name != "orders" || orders.Stored != 400 || orders.Acked != 2 || orders.Rates.In != 40 ||
		orders.Unreachable != 7 || orders.Verdicts[halfmsg.VerdictUnknown] != 1 || stock.Stored != 10 {
		t.Errorf("the counts are %+v and %+v", orders, stock)
	}
	if orders.OpenAt != 1 || orders.Of != 3 || orders.Paused != 2 || stock.OpenAt != 0 {
		t.Errorf("circuits: open at %d of %d, %d targets", orders.OpenAt, orders.Of, orders.Paused)
	}
	if orders.Failure != "connection refused" || orders.Verdict != halfmsg.VerdictUnknown ||
		orders.Took != 2*time.Second || !orders.AnsweredAt.After(orders.FailedAt) || orders.FailedAt.Before(began) {
		t.Errorf("the latest are %+v", orders)
	}
	if shop.Acked() != 100 || shop.Failure != "no exchange" || shop.Rates.Out != 10 || sums.Rates.Out != 10 {
		t.Errorf("the exchange is %+v, the rates %+v", shop, sums.Rates)
	}
}

// The quantiles of the sums are those of all messages, not a mean of the quantiles of the coordinators.
func TestQuantilesOfMergedHistograms(t *testing.T) {
	t.Parallel()
	began := time.Now()
	now := began.Add(10 * time.Second)
	fast, slow := &coordinator{Registry: peerstats.New()}, &coordinator{Registry: peerstats.New()}
	fast.report(began)
	slow.report(began)
	for range 970 {
		fast.Latency.Observe(10 * time.Millisecond)
	}
	for range 30 {
		slow.Latency.Observe(20 * time.Second)
	}
	sums := peerstats.Sum(fast.report(now), shared(t, slow.report(now)))
	if sums.P50 > 12*time.Millisecond || sums.P50 < 8*time.Millisecond ||
		sums.P99 < 17*time.Second || sums.P99 > 23*time.Second {
		t.Errorf("p50 %v, p99 %v", sums.P50, sums.P99)
	}
}

// Of many producers, a report has those that fail and the busiest, and adds up the rest.
func TestReportsAreBounded(t *testing.T) {
	t.Parallel()
	began := time.Now()
	c := &coordinator{Registry: peerstats.New()}
	c.report(began)
	total := int64(0)
	for i := range 1000 {
		n := int64(i%90 + 1)
		c.Stored(fmt.Sprint("p", i), n)
		total += n
	}
	c.Confirmed("p3", 1, nil, time.Second, errors.New(strings.Repeat("é", 1000)))
	for i := range 1000 {
		c.Published("", fmt.Sprint("e", i), halfmsg.Acked, 1)
	}
	now := began.Add(10 * time.Second)
	report := c.report(now)
	text, err := json.Marshal(report)
	if err != nil || len(report.Producers) != 50 || len(report.Exchanges) != 50 || len(text) > 45<<10 {
		t.Errorf("%d producers, %d exchanges, %d bytes, %v", len(report.Producers), len(report.Exchanges), len(text), err)
	}
	var stored int64
	kept := map[string]bool{}
	for _, p := range peerstats.Sum(shared(t, report)).Producers() {
		stored += p.Stored
		kept[p.Name] = true
	}
	if stored != total || !kept["p3"] || !kept["p88"] || kept["p10"] || !kept[peerstats.Other] {
		t.Errorf("%d of %d are counted; the producers are %v", stored, total, kept)
	}
}

func TestSumsHaveSharesOfAnswers(t *testing.T) {
	t.Parallel()
	began := time.Now()
	here, there := &coordinator{Registry: peerstats.New()}, &coordinator{Registry: peerstats.New()}
	here.report(began)
	there.report(began)
	here.Confirmed("orders", 3, map[string]halfmsg.Verdict{
		"1": halfmsg.VerdictCommitted, "2": halfmsg.VerdictUnknown, "3": halfmsg.VerdictUnavailable,
	}, time.Second, nil)
	there.Confirmed("orders", 2, nil, time.Second, errors.New("connection refused"))
	now := began.Add(10 * time.Second)
	got := peerstats.Sum(here.report(now), shared(t, there.report(now))).Producers()[0].Rates
	want := peerstats.Rates{Asked: .5, Unknown: .1, Failed: .3}
	if fmt.Sprintf("%.2f", got) != fmt.Sprintf("%.2f", want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
