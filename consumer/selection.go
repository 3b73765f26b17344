package consumer

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Selection says which letters a list or a change concerns.
type Selection struct {
	// Limit is how many letters there are at most, the oldest first. 0: any number.
	Limit int
	// Match reports whether a letter is concerned. Nil: every letter is.
	Match func(*Letter) bool
	// Changed gets each letter that was changed; a list changes none. Nil: no call.
	Changed func(*Letter)
	// MayReplay is the rule of a replay, which fails with ErrNoRule without one. Letters that it refuses stay.
	MayReplay Rule
}

// Rule says why a letter must not be published to its exchange and routing key; nil: it may be. Headers of the letter
// name both, and any client that may write to the dead-letter queue chooses the headers.
type Rule func(*Letter) error

// ErrNoRule is the error of a replay that does not say where letters may go. No letter was replayed.
var ErrNoRule = errors.New("a replay needs a rule, because headers of a letter choose its exchange: " +
	"consumer.ToExchanges, or consumer.Anywhere where only trusted programs may write to the queue")

// ToExchanges lets letters go to these exchanges, topics or streams only. "" is the default exchange of RabbitMQ, by
// which a letter reaches any queue.
func ToExchanges(names ...string) Rule {
	return func(l *Letter) error {
		if slices.Contains(names, l.Exchange) {
			return nil
		}
		return fmt.Errorf("its exchange %.100q is none of %q", l.Exchange, names)
	}
}

// Anywhere is the Rule that refuses no letter. It is for queues to which only trusted programs may write.
func Anywhere(*Letter) error { return nil }

// scan is the scan of a selection. A limit below 0 selects no letter.
func (s Selection) scan(purpose Purpose) Scan {
	scan := Scan{Match: s.Match, Limit: s.Limit, Purpose: purpose}
	if scan.Limit == 0 {
		scan.Limit = math.MaxInt
	}
	if scan.Match == nil {
		scan.Match = func(*Letter) bool { return true }
	}
	return scan
}

func (s Selection) tell(l *Letter) {
	if s.Changed != nil {
		s.Changed(l)
	}
}

// mayReplay is why a letter must not be replayed.
func (l *Letter) mayReplay(rule Rule) error {
	if l.cutName {
		return errCutName
	}
	return rule(l)
}
