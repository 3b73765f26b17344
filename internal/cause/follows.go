package cause

import (
	"slices"
	"strings"
	"time"
)

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

type consequence struct{ of, follow []string }

// consequences are problems that end by themselves when a problem behind them ends, by the names of findings and of
// alerts. The table has no circle.
var consequences = []consequence{
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

// Problem is what says whether one problem follows another.
type Problem struct {
	// Name is the finding or the alert, and Subject the part that the problem is about; empty: none, or unknown.
	Name, Subject string
	// Since and Until are when the problem began and ended; zero: unknown, and it lasts.
	Since, Until time.Time
}

const (
	// aheadOfCause is how long before its cause a consequence may begin: parts notice an outage one after another.
	aheadOfCause = 15 * time.Minute
	// behindCause is how long after the end of its cause a consequence may begin.
	behindCause = time.Minute
)

// follows says whether the problem is a consequence of another, which ends with that one: at the same time, and of the
// same broker, where both are about a broker.
func (p Problem) follows(of Problem) bool {
	earlier := !p.Since.IsZero() && p.Since.Before(of.Since.Add(-aheadOfCause))
	over := !p.Until.IsZero() && p.Until.Before(of.Since)
	later := !of.Until.IsZero() && p.Since.After(of.Until.Add(behindCause))
	return isConsequence(p.Name, of.Name) && !p.OtherBroker(of) && !earlier && !over && !later
}

// OtherBroker says whether both problems are about a broker, and not about the same.
func (p Problem) OtherBroker(of Problem) bool {
	return isBroker(p.Subject) && isBroker(of.Subject) && p.Subject != of.Subject
}

func isConsequence(name, of string) bool {
	return slices.ContainsFunc(consequences, func(c consequence) bool {
		return slices.Contains(c.of, of) && slices.Contains(c.follow, name)
	})
}

const (
	defaultBroker = "rabbitmq"
	namedBroker   = "broker "
)

// BrokerSubject is the subject of problems with a broker, and the name of its check; the empty name is the default
// broker.
func BrokerSubject(name string) string {
	if name == "" {
		return defaultBroker
	}
	return namedBroker + name
}

func isBroker(subject string) bool {
	return subject == defaultBroker || strings.HasPrefix(subject, namedBroker)
}

// Roots says of each problem which one is behind it in the end: the problem itself, where it follows no other.
func Roots(all []Problem) []int {
	behind := func(problem int) int {
		of := slices.IndexFunc(all, all[problem].follows)
		if of < 0 {
			return problem
		}
		return of
	}
	roots := make([]int, len(all))
	for i := range roots {
		for roots[i] = i; behind(roots[i]) != roots[i]; {
			roots[i] = behind(roots[i])
		}
	}
	return roots
}

// Folded is a problem that follows no other, and its consequences.
type Folded[P any] struct {
	Root         P
	Consequences []P
}

// Fold puts the consequences of each problem behind the problem itself, in the order of all.
func Fold[P any](all []P, of func(P) Problem) (folded []Folded[P]) {
	problems := make([]Problem, len(all))
	for i, p := range all {
		problems[i] = of(p)
	}
	roots := Roots(problems)
	for i, root := range all {
		if roots[i] != i {
			continue
		}
		f := Folded[P]{Root: root}
		for j, p := range all {
			if j != i && roots[j] == i {
				f.Consequences = append(f.Consequences, p)
			}
		}
		folded = append(folded, f)
	}
	return folded
}
