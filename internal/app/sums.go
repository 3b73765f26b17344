package app

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/console/history"
	"github.com/msghandler/msghandler/internal/server"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// addSums adds the sums to an answer of the API.
func (a *App) addSums(to *adminv1.GetStatsResponse) {
	now := time.Now()
	sums := a.peers.Sums(now)
	to.AttendingProducers = a.peers.Attending(now)
	to.Flow = &adminv1.FlowStats{
		CoordinatorCount: int32(sums.Coordinators), StoredPerSecond: sums.Rates.In, //nolint:gosec // a hundred at most
		AcknowledgedPerSecond: sums.Rates.Out, RefusedPerSecond: sums.Rates.Refused,
		LatencyP50: durationOf(sums.P50), LatencyP99: durationOf(sums.P99),
	}
	for _, p := range sums.Producers() {
		to.Producers = append(to.Producers, &adminv1.ProducerStats{
			Name: p.Name, CoordinatorCount: int32(p.Of), OpenCircuits: int32(p.OpenAt), //nolint:gosec // a hundred at most
			StoredTotal: p.Stored, AcknowledgedTotal: p.Acked, StoredPerSecond: p.Rates.In,
			AcknowledgedPerSecond: p.Rates.Out, RefusedPerSecond: p.Rates.Refused,
			LastAnswerTime: server.Moment(p.AnsweredAt), LastAnswerLatency: durationOf(p.Took),
			LastVerdict:     msghandlerv1.Verdict(p.Verdict),
			LastFailureTime: server.Moment(p.FailedAt), LastFailure: p.Failure,
		})
	}
	for _, e := range sums.Exchanges() {
		to.Exchanges = append(to.Exchanges, &adminv1.ExchangeStats{
			Broker: e.Broker, Name: e.Name, AcknowledgedTotal: e.Acked(), RefusedTotal: e.Failed(),
			AcknowledgedPerSecond: e.Rates.Out, RefusedPerSecond: e.Rates.Refused,
			LastAcknowledgeTime: server.Moment(e.AckedAt),
			LastFailureTime:     server.Moment(e.FailedAt), LastFailure: e.Failure,
		})
	}
}

// durationOf is a duration of the API; nil for none.
func durationOf(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// charts keep the charts of the console in Redis.
type charts struct{ app *App }

// chartOf is the chart of a range.
func chartOf(r history.Range) redisstore.Chart {
	return redisstore.Chart{Step: r.Step, Keep: r.Span}
}

// Add implements console.Charts.
func (c charts) Add(ctx context.Context, counts history.Addition) (time.Time, error) {
	store := c.app.store.Load()
	if store == nil {
		return time.Time{}, cause.ErrNotOpen
	}
	var all []redisstore.Chart
	for _, r := range history.Ranges {
		all = append(all, chartOf(r))
	}
	named := make([]redisstore.NamedCounts, len(counts.Named))
	for i, n := range counts.Named {
		named[i] = redisstore.NamedCounts(n)
	}
	return store.AddToCharts(ctx, all, redisstore.ChartCounts{
		Sums: counts.Sums, Latest: counts.Latest, Named: named, MaxNames: history.MaxNames,
	})
}

// Read implements console.Charts.
func (c charts) Read(
	ctx context.Context, r history.Range, since time.Time,
) (buckets []history.Bucket, now time.Time, err error) {
	store := c.app.store.Load()
	if store == nil {
		return nil, time.Time{}, cause.ErrNotOpen
	}
	read, now, err := store.ReadChart(ctx, chartOf(r), since)
	for _, b := range read {
		buckets = append(buckets, history.NewBucket(b.At, b.Fields))
	}
	return buckets, now, err
}
