package config

import "github.com/msghandler/msghandler/internal/halfmsg"

// Limits bounds what callers may send.
type Limits struct {
	Body       Size
	Requests   Size
	Waiting    int
	Unfinished int
	// Connections is how many connections clients may have, 0 for what the descriptors of the process allow.
	Connections int
	// ConnectionsPerAddress is how many of them may come from one address, 0 for half of each listener's.
	ConnectionsPerAddress int
}

func (l *Limits) keys() []Key {
	return []Key{
		{
			Name: "limits.body", Default: "1MiB", value: size(&l.Body, 1, halfmsg.MaxBody),
			Meaning: "The largest body a message may have.",
		},
		{
			Name: "limits.requests", Default: "256MiB", value: size(&l.Requests, 32<<20, 1<<40),
			Meaning: "How many bytes all requests together may hold, from when one announces its size until it is answered. Past it " +
				"callers get RESOURCE_EXHAUSTED. Requests over 64 KiB may take three quarters of it.",
		},
		{
			Name: "limits.connections", Default: "0", value: whole(&l.Connections, 0, 1_000_000),
			Meaning: "How many connections clients may have open, in all. A quarter of them, 256 at most, is for http.addr and the rest for " +
				"grpc.addr; more are closed at once. 0: up to 4,096, as the limit of open files (ulimit -n) allows.",
		},
		{
			Name: "limits.connections_per_address", Default: "0", value: whole(&l.ConnectionsPerAddress, 0, 1_000_000),
			Meaning: "How many connections may come to each listener from one IP address (in IPv6 from one /64). 0: half of those that the " +
				"listener may have. Clients behind one proxy or NAT count as one address.",
		},
		{
			Name: "limits.waiting", Default: "10000", value: whole(&l.Waiting, 1, 1000000),
			Meaning: "How many calls of a kind may wait for Redis. Past it callers get RESOURCE_EXHAUSTED.",
		},
		{
			Name: "limits.unfinished", Default: "1000000", value: whole(&l.Unfinished, 1, 1_000_000_000),
			Meaning: "How many unfinished messages (PENDING, SENDABLE, ABANDONED and DEAD) one producer may have in Redis, " +
				"counted by shard and so roughly. Past it its SendHalfMessage gets RESOURCE_EXHAUSTED.",
		},
	}
}
