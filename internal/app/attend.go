package app

import (
	"context"
	"time"

	"github.com/msghandler/msghandler/internal/attend"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// newAttendance builds the hub of the streams of producers that attend, without a stream yet.
func (a *App) newAttendance() *attend.Hub {
	hub := attend.New(attend.Config{
		Instance: a.process.instance,
		Streams:  mostAttending, PerProducer: a.bounds.AttendingPerProducer,
		AnnounceEvery: time.Duration(a.bounds.Rest) * attend.AnnounceEvery,
		Asked:         a.metrics.Asked, Split: a.noteSplit, Logger: a.logger,
	})
	a.metrics.Attending(hub.Streams, mostAttending)
	return hub
}

// openAttendance connects the hub with the other coordinators. It closes after the loops, which ask through it.
func (a *App) openAttendance(store *redisstore.Store) {
	a.attendance.Connect(store)
	a.closeWith(closer{name: "attendance", close: func(ctx context.Context) error { return a.attendance.Close(ctx) }})
}
