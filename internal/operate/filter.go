package operate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// matcher reports whether a selection means a letter. Its ages are those at its making.
func matcher(names []*adminv1.MessageName, f *adminv1.DeadLetterFilter) func(l *consumer.Letter) bool {
	now, keys := time.Now(), make([]string, 0, len(names))
	for _, n := range names {
		keys = append(keys, n.GetProducer()+"/"+n.GetId())
	}
	is := func(want, value string) bool { return want == "" || want == clean(value) }
	least, cause := f.GetMinAge().AsDuration(), halfmsg.Cause(f.GetCause(), halfmsg.Name{})
	return func(l *consumer.Letter) bool {
		return (len(keys) == 0 || slices.Contains(keys, clean(l.Name()))) &&
			is(f.GetProducer(), l.Producer) && is(f.GetConsumer(), cmp.Or(l.Queue, halfmsg.EmptyField)) &&
			is(f.GetExchange(), cmp.Or(l.Exchange, halfmsg.DefaultExchange)) &&
			is(f.GetRoutingKey(), cmp.Or(l.RoutingKey, halfmsg.EmptyField)) && is(cause, causeOf(l)) &&
			(contains(l.FirstCause, f.GetCauseContains()) || contains(l.Reason, f.GetCauseContains())) &&
			(least == 0 || now.Sub(l.Since()) >= least)
	}
}

func contains(text, part string) bool {
	return part == "" || strings.Contains(strings.ToLower(text), strings.ToLower(part))
}

// clean replaces what is no text: any program may write anything into a letter, and an answer holds only text.
func clean(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
