package connlimit

// Share says how many connections each listener may have.
type Share struct {
	// API and Console are the shares of the gRPC API and of the HTTP listener. The HTTP listener has a share of its own,
	// so that probes are answered when the API is full.
	API, Console int
	// APIPerAddress and ConsolePerAddress are how many of them may come from one address.
	APIPerAddress, ConsolePerAddress int
	// Descriptors is how many descriptors the process may have open, 0 where the limit is unknown.
	Descriptors int
	// Low says that there are fewer than a coordinator should have.
	Low bool
}

const (
	// mostConnections is where the total ends: each connection takes about 100 KiB of memory.
	mostConnections = 4096
	// mostOfConsole bounds the share of the console, in connections.
	mostOfConsole = 256
	// reserve is how many descriptors a coordinator needs itself: up to 16 connections for each pool and node of Redis, a
	// connection for each address of each producer, RabbitMQ, the webhook, and files.
	reserve = 192
	// enough is from how many descriptors on there is no warning.
	enough = 1024
)

// Divide divides the descriptors of a process; 0: their limit is unknown.
func Divide(descriptors int) Share {
	s := Share{Descriptors: descriptors, Low: descriptors > 0 && descriptors < enough}
	total := mostConnections
	if descriptors > 0 {
		total = min(total, descriptors-min(descriptors/2, max(reserve, descriptors/4)))
	}
	s.Console = max(1, min(total/4, mostOfConsole))
	s.API = max(1, total-s.Console)
	s.APIPerAddress, s.ConsolePerAddress = max(1, s.API/2), max(1, s.Console/2)
	return s
}
