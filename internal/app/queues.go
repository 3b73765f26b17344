package app

import "maps"

// queueDepths is how many messages wait in the queues that are watched. A nil one knows of none.
type queueDepths struct {
	depths map[string]int
	// known says that the broker could be asked: a queue that is not among the depths is not there then.
	known bool
}

func (q *queueDepths) all() map[string]int {
	if q == nil {
		return nil
	}
	return q.depths
}

// of gives the depths of these queues, as far as they are known.
func (q *queueDepths) of(names []string) map[string]int {
	some := maps.Clone(q.all())
	keep := map[string]bool{}
	for _, name := range names {
		keep[name] = true
	}
	maps.DeleteFunc(some, func(name string, _ int) bool { return !keep[name] })
	return some
}
