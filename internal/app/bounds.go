package app

import (
	"cmp"
	"time"
)

// Bounds are what no key of the configuration sets. Tests set some; the others have their defaults.
type Bounds struct {
	// A client is asked to close a connection at ConnectionAge, so that clients spread over new coordinators, and after
	// ConnectionIdle without a call.
	ConnectionAge, ConnectionIdle time.Duration
	// AttendingPerProducer bounds the streams of a producer that attends, at this coordinator.
	AttendingPerProducer int
	// Schedules replaces the schedules of loops, by their names.
	Schedules map[string]string
	// Rest is how many times less often coordinators tell each other that they run and which producers attend, and ask
	// silent clients for a sign of life.
	Rest int
	// Unwatched coordinators count nothing for the console's charts, and do not measure how late they run.
	Unwatched bool
	// Sendable messages older than SendableAge are a backlog that people are told of.
	Sendable    int
	SendableAge time.Duration
}

func (b Bounds) withDefaults() Bounds {
	return Bounds{
		ConnectionAge:        cmp.Or(b.ConnectionAge, time.Hour),
		ConnectionIdle:       cmp.Or(b.ConnectionIdle, 10*time.Minute),
		AttendingPerProducer: cmp.Or(b.AttendingPerProducer, 1000),
		Schedules:            b.Schedules,
		Rest:                 cmp.Or(b.Rest, 1),
		Unwatched:            b.Unwatched,
		Sendable:             cmp.Or(b.Sendable, 1000),
		SendableAge:          cmp.Or(b.SendableAge, time.Minute),
	}
}

const (
	// mostAttending bounds the streams of producers that attend, in all.
	mostAttending = 10_000
	// mostWaiting bounds the calls of a kind that wait for Redis, on a Cluster for each master.
	mostWaiting = 10_000
	// callsPerProducer bounds the Confirm calls to a producer at once, and queuePerProducer its messages in memory.
	callsPerProducer, queuePerProducer = 4, 2000
	// sendParallel bounds the batches in flight to a broker at once, and sendQueue the messages in memory for a broker.
	sendParallel, sendQueue = 4, 5000
	// sessionAge is how long a login to the console lasts.
	sessionAge = 8 * time.Hour
	// auditRecords is about how many audit records Redis keeps in each list.
	auditRecords = 10_000
)
