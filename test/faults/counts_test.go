package faults

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// countsAll says whether the coordinators' counts must agree with the deliveries. No coordinator may have ended. The
// row must not stop its broker, because a stopped broker may forget deliveries, and JetStream drops copies itself. And
// no consumer may publish a message again, as consumers in processes do with messages that they could not handle.
func (w *world) countsAll() bool {
	ended := slices.ContainsFunc(w.coordinators, func(c *coordinator) bool { return c.ended })
	return !ended && w.node == nil && w.business == nil && w.stream == nil
}

// countedWithin is how long after its arrival a publish may be counted at the latest: the count may wait for the
// answer for MSGHANDLER_SEND_CONFIRM_TIMEOUT, 10 s at most.
const countedWithin = 20 * time.Second

// account reads the coordinators' counts once they agree with the ledger or have had the time to agree.
func (w *world) account(end *End, within time.Duration) {
	w.t.Helper()
	for deadline := time.Now().Add(within); ; wait(100 * time.Millisecond) {
		end.Counted, end.Open = w.published("acked"), w.published("refused")+w.published("unsure")
		if w.ledger.unbalanced(*end) == "" || time.Now().After(deadline) {
			break
		}
	}
	w.t.Logf("the coordinators count %d publishes acknowledged, %d refused or unanswered; %d copies were redelivered",
		end.Counted, end.Open, w.ledger.redelivered())
}

// unansweredPublishes counts publishes without an answer of the broker in time: a copy may be out.
const unansweredPublishes = `msghandler_publishes_total{outcome="unsure"}`

// published sums up how many publishes had an outcome since the coordinators started: acked, refused, unsure, unsent.
func (w *world) published(outcome string) int {
	w.t.Helper()
	return w.counted(fmt.Sprintf("msghandler_publishes_total{outcome=%q}", outcome))
}

// counted sums up a metric of the coordinators that answer; the counts of ended coordinators are gone.
func (w *world) counted(metric string) (n int) {
	w.t.Helper()
	for _, c := range w.coordinators {
		n += w.countedBy(c, metric)
	}
	return n
}

// countedBy sums up a coordinator's count since its start, in all series that have at least these labels.
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

// isOf says whether a line of the metrics has that name and at least the given labels.
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
