package faults

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// countsAll says whether what the coordinators count must agree with what consumers got: none of them ended, the broker
// is not one that the row stops, for that may forget what it has delivered, and no consumer publishes again what it
// could not handle, as those do that are processes.
func (w *world) countsAll() bool {
	ended := slices.ContainsFunc(w.coordinators, func(c *coordinator) bool { return c.ended })
	return !ended && w.node == nil && w.business == nil
}

// countedWithin is how long after its arrival a publishing may be counted at the latest: it may have to wait for its
// answer for MSGHANDLER_SEND_CONFIRM_TIMEOUT, 10 s at most.
const countedWithin = 20 * time.Second

// account reads what the coordinators count, when that agrees with the ledger or has had the time to.
func (w *world) account(end *End, within time.Duration) {
	w.t.Helper()
	for deadline := time.Now().Add(within); ; wait(100 * time.Millisecond) {
		end.Counted, end.Open = w.published("acked"), w.published("refused")+w.published("unsure")
		if w.ledger.unbalanced(*end) == "" || time.Now().After(deadline) {
			break
		}
	}
	w.t.Logf("the coordinators count %d publishings acknowledged, %d refused or unanswered; %d copies were redelivered",
		end.Counted, end.Open, w.ledger.redelivered())
}

// unansweredPublishes counts publishes that the broker did not answer in time: a copy may be out.
const unansweredPublishes = `msghandler_publishes_total{outcome="unsure"}`

// published sums up how many publishings had an outcome since the coordinators started: acked, refused, unsure, unsent.
func (w *world) published(outcome string) int {
	w.t.Helper()
	return w.counted(fmt.Sprintf("msghandler_publishes_total{outcome=%q}", outcome))
}

// counted sums up a metric of the coordinators that answer; of those that ended the counts went with them.
func (w *world) counted(metric string) (n int) {
	w.t.Helper()
	for _, c := range w.coordinators {
		n += w.countedBy(c, metric)
	}
	return n
}

// countedBy sums up what a coordinator has counted since it started, in all series that have these labels and others.
func (w *world) countedBy(c *coordinator, metric string) (n int) {
	w.t.Helper()
	_, text := c.page("/metrics")
	for line := range strings.Lines(text) {
		if !isOf(line, metric) {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
		if err != nil {
			w.t.Fatal(err)
		}
		n += int(value)
	}
	return n
}

// isOf says whether a line of the metrics is of that name and has the labels that are given with it.
func isOf(line, metric string) bool {
	name, labels, _ := strings.Cut(strings.TrimSuffix(metric, "}"), "{")
	if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") {
		return false
	}
	for label := range strings.SplitSeq(labels, ",") {
		if !strings.Contains(line, label) {
			return false
		}
	}
	return true
}

func TestSeriesAreSelectedByLabels(t *testing.T) {
	const line = `msghandler_publishes_total{exchange="orders",outcome="acked"} 7`
	for metric, want := range map[string]bool{
		`msghandler_publishes_total{outcome="acked"}`: true, `msghandler_publishes_total{`: true,
		`msghandler_publishes_total{exchange="orders",`: true, `msghandler_publishes_total{outcome="refused"}`: false,
		`msghandler_publishes_total{outcome="acked",exchange="stock"}`: false, `msghandler_publishes{`: false,
	} {
		if isOf(line, metric) != want {
			t.Errorf("%s: counted %t", metric, !want)
		}
	}
}
