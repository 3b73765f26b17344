package cause

import "slices"

var (
	redisStops = []string{
		"redis-away", "redis-mute", "redis-login", "redis-permission", "redis-replica", "redis-disk", "redis-loading",
		"redis-no-replicas", "redis-master-away", "redis-clients", "redis-tls", "redis-refuses",
	}
	brokerStops = []string{
		"rabbitmq-away", "rabbitmq-login", "rabbitmq-vhost", "rabbitmq-handshake", "rabbitmq-tls", "rabbitmq-alarm",
		"rabbitmq-refuses", "broker-away", "broker-login", "broker-handshake", "broker-tls", "broker-blocked",
	}
	producerStops = []string{
		"producer-away", "producer-no-service", "producer-mute", "producer-fails", "producer-refuses", "producer-another",
		"producer-certificate", "producer-no-verdict", "producer-forbidden",
	}
)

// consequences are problems that end by themselves when a problem behind them ends, by the names of findings and of
// alerts. The table has no circle.
var consequences = []struct{ of, follow []string }{
	// A disk without room refuses writes, which pile up in the memory of Redis, and holds up its answers.
	{[]string{"redis-disk"}, []string{"redis-full", "redis-memory", "redis-mute", "redis-away", "redis-loading"}},
	{[]string{"redis-full"}, []string{"redis-memory"}},
	// A Redis that is nearly full (redis-memory) refuses no call: then a producer is over its quota.
	{append([]string{"redis-full"}, redisStops...), []string{"MsghandlerFull"}},
	{redisStops, []string{
		"coordinator-not-serving", "coordinator-degraded", "MsghandlerPendingOld", "MsghandlerBacklog", "messages-stuck",
	}},
	// A broker with an alarm opens connections slowly or not at all, and queues without a disk lose their leaders.
	{[]string{"rabbitmq-alarm"}, []string{"rabbitmq-away", "rabbitmq-handshake", "rabbitmq-refuses", "queue-stalled"}},
	{append([]string{"queue-stalled"}, brokerStops...), []string{"messages-stuck", "letters-unread", "MsghandlerBacklog"}},
	{brokerStops, []string{"coordinator-not-serving"}},
	{producerStops, []string{"MsghandlerPendingOld"}},
}

// Follows says whether a problem is a consequence of another: it needs no action of its own while the other lasts.
func Follows(name, of string) bool {
	for _, c := range consequences {
		if slices.Contains(c.of, of) && slices.Contains(c.follow, name) {
			return true
		}
	}
	return false
}

// Roots says of each of n problems which one is behind it in the end: the problem itself, where it follows no other.
func Roots(n int, follows func(problem, of int) bool) []int {
	behind := func(problem int) int {
		for of := range n {
			if follows(problem, of) {
				return of
			}
		}
		return problem
	}
	roots := make([]int, n)
	for i := range roots {
		for roots[i] = i; behind(roots[i]) != roots[i]; {
			roots[i] = behind(roots[i])
		}
	}
	return roots
}
