package letters

import (
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/consumer"
)

// Filter selects dead letters. Empty fields select any.
type Filter struct {
	// Names are PRODUCER/ID, or PRODUCER/ for letters without an id.
	Names []string
	// Producer, Consumer and Exchange are exact. Consumer is the queue, topic or stream that the message was consumed
	// from.
	Producer, Consumer, Exchange string
	// Cause is a part of the first cause or of the last reason, in any case.
	Cause string
	// OlderThan is the least age of a letter, since its first failure.
	OlderThan time.Duration
}

// All says whether the filter selects every letter.
func (f *Filter) All() bool {
	return len(f.Names) == 0 && f.Producer == "" && f.Consumer == "" && f.Exchange == "" && f.Cause == "" &&
		f.OlderThan == 0
}

// Match reports whether the filter selects a letter at a time.
func (f *Filter) Match(l *consumer.Letter, now time.Time) bool {
	is := func(want, value string) bool { return want == "" || want == value }
	return (len(f.Names) == 0 || slices.Contains(f.Names, l.Name())) &&
		is(f.Producer, l.Producer) && is(f.Consumer, l.Queue) && is(f.Exchange, l.Exchange) &&
		(f.Cause == "" || contains(l.FirstCause, f.Cause) || contains(l.Reason, f.Cause)) &&
		(f.OlderThan == 0 || now.Sub(l.Since()) >= f.OlderThan)
}

func contains(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}
