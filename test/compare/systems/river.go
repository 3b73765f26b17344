package systems

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// jobs is River: a job inserted in the transaction of the business, and a worker that publishes. The job is done when
// the broker has acknowledged and routed the message.
//
// The times of the fetches and the number of workers are those of River's own benchmark
// (cmd/river/riverbench/river_bench.go), which says that they perform much better than the defaults. JobTimeout and
// RescueStuckJobsAfter bound how long the jobs of a killed process wait: the default is an hour.
var jobs = Kind{
	Name: "river", Title: "River, a worker that publishes",
	Setup:   setupRiver,
	Open:    openRiver,
	Waiting: `SELECT count(*) FROM river_job WHERE state <> 'completed'`,
	Fate: `SELECT 'state ' || state || ', attempt ' || attempt || ', ' ||
		coalesce(errors[array_upper(errors, 1)] ->> 'error', '')
		FROM river_job WHERE args ->> 'id' = $1`,
}

const (
	fetchCooldown = 2 * time.Millisecond
	fetchPoll     = 20 * time.Millisecond
	maxWorkers    = 2000
	snooze        = time.Second
	jobTimeout    = 25 * time.Second
	rescueAfter   = 30 * time.Second
)

// publishArgs is a job: one message. The body is one opaque value. As JSON it would cost more: River has a GIN index on
// the arguments, with an entry for each key and value.
type publishArgs struct {
	ID         string `json:"id"`
	RoutingKey string `json:"routing_key"`
	Body       []byte `json:"body"`
}

// Kind implements river.JobArgs.
func (publishArgs) Kind() string { return "publish" }

// publishWorker publishes jobs.
type publishWorker struct {
	river.WorkerDefaults[publishArgs]
	publisher *publisher
}

// Work implements river.Worker. While the broker is away jobs are snoozed, which uses up no attempt: the pause after a
// third attempt is a minute and a half. A message that may have been published costs an attempt, and so its copy is
// flagged.
func (w *publishWorker) Work(ctx context.Context, job *river.Job[publishArgs]) error {
	err := w.publisher.publish(ctx, job.Args.ID, job.Args.RoutingKey, job.Args.Body, job.Attempt)
	if errors.Is(err, errAway) {
		return river.JobSnooze(snooze)
	}
	return err
}

func setupRiver(ctx context.Context, c Config) error {
	pool, err := openPool(ctx, c.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

type riverSystem struct {
	pool      *pgxpool.Pool
	client    *river.Client[pgx.Tx]
	publisher *publisher
}

func openRiver(ctx context.Context, c Config) (System, error) {
	pool, err := openPool(ctx, c.Database)
	if err != nil {
		return nil, err
	}
	s := &riverSystem{pool: pool, publisher: &publisher{url: c.Broker}}
	workers := river.NewWorkers()
	river.AddWorker(workers, &publishWorker{publisher: s.publisher})
	s.client, err = river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown: fetchCooldown, FetchPollInterval: fetchPoll,
		Queues:     map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: maxWorkers}},
		Workers:    workers,
		JobTimeout: jobTimeout, RescueStuckJobsAfter: rescueAfter,
		Logger: quiet,
	})
	if err != nil {
		return nil, err
	}
	return s, s.client.Start(ctx)
}

func (s *riverSystem) Commit(ctx context.Context, o Order) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, InsertOrder, o.business()...); err != nil {
			return err
		}
		_, err := s.client.InsertTx(ctx, tx, publishArgs{ID: o.ID(), RoutingKey: o.RoutingKey, Body: o.Body}, nil)
		return err
	})
}

func (s *riverSystem) Close() {
	_ = s.client.Stop(context.Background())
	s.publisher.close()
	s.pool.Close()
}
