package simulation

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// counted is how many publishes the coordinators count as acknowledged, and how many as refused or unanswered; -1 where
// a coordinator was killed, and its counts with it, or where the broker has lost what it has acknowledged.
func (w *World) counted() (acknowledged, open int) {
	if w.losses.any() {
		return -1, 0
	}
	for _, n := range w.Nodes {
		if n.processes() > 1 {
			return -1, 0
		}
		acknowledged += w.metric(n, `msghandler_publishes_total{outcome="acked"`)
		open += w.metric(n, `msghandler_publishes_total{outcome="refused"`)
		open += w.metric(n, `msghandler_publishes_total{outcome="unsure"`)
	}
	return acknowledged, open
}

// metric sums up a coordinator's series that begin so.
func (w *World) metric(n *Node, begin string) (sum int) {
	page, err := w.metricsOf(n)
	if err != nil {
		w.report("STUCK: coordinator %d gives no metrics when all is repaired: %v", n.Number, err)
	}
	name, label, _ := strings.Cut(begin, "{")
	for line := range strings.Lines(page) {
		is := strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ")
		if value := strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]); is && strings.Contains(line, label) {
			count, _ := strconv.ParseFloat(value, 64) // the coordinator has written it
			sum += int(count)
		}
	}
	return sum
}

// metricsOf is the page of a coordinator's metrics.
func (w *World) metricsOf(n *Node) (string, error) {
	ctx, cancel := context.WithTimeout(w.life, 10*time.Second)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(
		ctx context.Context, _, addr string,
	) (net.Conn, error) {
		return w.observer.Dial(ctx, "tcp", addr)
	}}
	at := "http://" + strings.TrimSuffix(n.Address, "9090") + "9091/metrics"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	page, err := io.ReadAll(response.Body)
	return string(page), err
}

// regression is a loss of writes of Redis that the coordinators must notice: each of them had counted meanwhile.
type regression struct {
	at time.Time
	// processes are the numbers of the processes that ran then, by their places.
	processes []int
}

// counts are how far the coordinators have counted in Redis.
func (r *redisServer) counts() map[string]string {
	counts, key := map[string]string{}, keyPrefix+":{00}:pulse"
	who, _ := r.mini.HKeys(key) // none has counted yet
	for _, name := range who {
		if strings.Contains(name, "/") {
			counts[name] = r.mini.HGet(key, name)
		}
	}
	return counts
}

// noteRegression notes that Redis has gone back from so far.
func (w *World) noteRegression(before map[string]string) {
	after, gone := w.Redis.counts(), 0
	for who, count := range before {
		if after[who] != count {
			gone++
		}
	}
	if gone < len(w.Nodes) {
		return
	}
	r := regression{at: time.Now()}
	for _, n := range w.Nodes {
		r.processes = append(r.processes, n.processes())
	}
	w.regressions = append(w.regressions, r)
}

// judgeRegressions demands that one of the coordinators that have run since reports that Redis has lost writes. To
// another one the reply to its last count may have been on its way.
func (w *World) judgeRegressions() {
	for _, r := range w.regressions {
		lived, told := 0, 0
		for i, n := range w.Nodes {
			if n.processes() == r.processes[i] {
				lived++
				told += w.metric(n, "msghandler_store_regressions_total")
			}
		}
		if lived > 1 && told == 0 {
			w.report("UNNOTICED: none of %d coordinators has noticed that Redis lost its writes at %v", lived,
				r.at.Sub(w.log.begun))
		}
	}
}
