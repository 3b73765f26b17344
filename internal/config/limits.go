package config

import "github.com/msghandler/msghandler/internal/halfmsg"

// Limits bounds the messages of producers.
type Limits struct {
	Body       Size
	Unfinished int
}

func (l *Limits) keys() []Key {
	return []Key{
		{
			Name: "limits.body", Default: "1MiB", value: size(&l.Body, 1, halfmsg.MaxBody),
			Meaning: "Maximum size of a message's body.",
		},
		{
			Name: "limits.unfinished", Default: "1000000", value: whole(&l.Unfinished, 1, 1_000_000_000),
			Meaning: "Unfinished messages (PENDING, SENDABLE, ABANDONED and DEAD) of one producer in Redis, counted by shard " +
				"and so roughly. Above it SendHalfMessage gets RESOURCE_EXHAUSTED.",
		},
	}
}
