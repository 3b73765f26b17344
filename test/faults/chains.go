package faults

import (
	"maps"
	"slices"
)

// Ordered is noted before the SendHalfMessage of a message with an ordering key.
func (l *Ledger) Ordered(key, chain string) {
	l.change(key, "producer", "the message is in the chain "+chain, func(e *Entry) { e.Chain = chain })
}

// Reached is noted when a broker has taken a copy, in the order in which it takes them.
func (l *Ledger) Reached(key string) {
	l.change(key, "broker", "takes a copy", func(e *Entry) {
		if l.reached++; e.reached == 0 {
			e.reached = l.reached
		}
	})
}

// overtaken finds the committed messages that a later message of their chain has overtaken: one whose SendHalfMessage
// began when that of the overtaken message was answered already. l.mu is held.
func (l *Ledger) overtaken() (found []Finding) {
	chains := map[string][]string{}
	for _, key := range l.keys() {
		if chain := l.entries[key].Chain; chain != "" {
			chains[chain] = append(chains[chain], key)
		}
	}
	for _, chain := range slices.Sorted(maps.Keys(chains)) {
		for _, key := range chains[chain] {
			first := l.entries[key]
			if !first.Accepted || first.Fate != Committed {
				continue
			}
			for _, other := range chains[chain] {
				second := l.entries[other]
				if first.AcceptedAt.Before(second.SentAt) && second.reached > 0 &&
					(first.reached == 0 || first.reached > second.reached) {
					found = append(found, Finding{OutOfOrder, key, other + " was stored later, and reached the broker first"})
				}
			}
		}
	}
	return found
}
