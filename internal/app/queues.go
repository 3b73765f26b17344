package app

import "maps"

// queueDepths is how many messages wait in the watched queues. A nil queueDepths knows no queue.
type queueDepths struct {
	depths map[string]int
	// known says that the broker has answered: a queue without a depth does not exist then.
	known bool
}

func (q *queueDepths) all() map[string]int {
	if q == nil {
		return nil
	}
	return q.depths
}

// of returns the known depths of these queues.
func (q *queueDepths) of(names []string) map[string]int {
	some := maps.Clone(q.all())
	keep := map[string]bool{}
	for _, name := range names {
		keep[name] = true
	}
	maps.DeleteFunc(some, func(name string, _ int) bool { return !keep[name] })
	return some
}
