package config

import "github.com/msghandler/msghandler/internal/halfmsg"

// Limits bounds the requests and connections of callers.
type Limits struct {
	Body       Size
	Requests   Size
	Waiting    int
	Unfinished int
	// Connections bounds the connections of all clients; 0: as many as the file descriptors of the process allow.
	Connections int
	// ConnectionsPerAddress bounds the connections from an IP address; 0: half of each listener's.
	ConnectionsPerAddress int
	// Attending and AttendingPerProducer bound the streams of producers that attend, in all and of each producer.
	Attending, AttendingPerProducer int
}

func (l *Limits) keys() []Key {
	return []Key{
		{
			Name: "limits.body", Default: "1MiB", value: size(&l.Body, 1, halfmsg.MaxBody),
			Meaning: "Maximum size of a message's body.",
		},
		{
			Name: "limits.requests", Default: "256MiB", value: size(&l.Requests, 32<<20, 1<<40),
			Meaning: "Bytes that all requests together may hold, from the announcement of a request's size to its answer. " +
				"Above it callers get RESOURCE_EXHAUSTED. Requests over 64 KiB may take three quarters of it.",
		},
		{
			Name: "limits.connections", Default: "0", value: whole(&l.Connections, 0, 1_000_000),
			Meaning: "Open client connections, in all. A quarter of them, 256 at most, is for http.addr and the rest for " +
				"grpc.addr; further connections are closed at once. 0: up to 4,096, as the limit of open files (ulimit " +
				"-n) allows.",
		},
		{
			Name: "limits.connections_per_address", Default: "0", value: whole(&l.ConnectionsPerAddress, 0, 1_000_000),
			Meaning: "Connections to each listener from one IP address (in IPv6 from one /64). 0: half of the listener's " +
				"connections. Clients behind one proxy or NAT count as one address.",
		},
		{
			Name: "limits.attending", Default: "10000", value: whole(&l.Attending, 1, 1_000_000),
			Meaning: "Streams of producers that attend (Attend), in all, at this coordinator. Above it callers get " +
				"RESOURCE_EXHAUSTED.",
		},
		{
			Name: "limits.attending_per_producer", Default: "1000", value: whole(&l.AttendingPerProducer, 1, 1_000_000),
			Meaning: "Streams of one producer that attends, at this coordinator.",
		},
		{
			Name: "limits.waiting", Default: "10000", value: whole(&l.Waiting, 1, 1000000),
			Meaning: "Calls of a kind that may wait for Redis, on a Cluster for each master. Above it callers get " +
				"RESOURCE_EXHAUSTED.",
		},
		{
			Name: "limits.unfinished", Default: "1000000", value: whole(&l.Unfinished, 1, 1_000_000_000),
			Meaning: "Unfinished messages (PENDING, SENDABLE, ABANDONED and DEAD) of one producer in Redis, counted by shard " +
				"and so roughly. Above it SendHalfMessage gets RESOURCE_EXHAUSTED.",
		},
	}
}
