package operate

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// MessageText is a filter of unfinished messages as people write it: in the flags of a command, or in the form of a
// page.
type MessageText struct {
	State      string `type:"filter" help:"Messages in this state: pending, sendable, abandoned, dead or acknowledged." placeholder:"STATE"`
	Producer   string `type:"filter" help:"Only those of this producer." placeholder:"NAME"`
	Exchange   string `type:"filter" help:"Only those that go to this exchange." placeholder:"NAME"`
	Broker     string `type:"filter" help:"Only those for this broker, of brokers.NAME.url; (default): for the broker of amqp.url." placeholder:"NAME"`
	OlderThan  string `type:"age" help:"Only those that were stored at least so long ago, such as 10m." placeholder:"DURATION"`
	Error      string `type:"filter" help:"Only those whose last error contains this text, ignoring case." placeholder:"TEXT"`
	Cause      string `type:"filter" help:"Only those with the cause of this text, as list --group prints it; (none): those without an error." placeholder:"TEXT"`
	ID         string `name:"id" type:"filter" help:"Only those whose ids begin with this text." placeholder:"TEXT"`
	RoutingKey string `type:"filter" help:"Only those with this routing key." placeholder:"KEY"`
	Header     string `type:"filter" help:"Only those with this header, such as tenant=nordic; needs the role reader." placeholder:"NAME=VALUE"`
}

// FinishedText is a filter of finished messages as people write it.
type FinishedText struct {
	Producer   string `type:"filter" help:"Only those of this producer." placeholder:"NAME"`
	ID         string `type:"filter" help:"Only those with this id, of any producer." placeholder:"ID"`
	State      string `type:"filter" help:"Only those that ended so: done, rolled_back, or discarded." placeholder:"STATE"`
	Exchange   string `type:"filter" help:"Only those that went to this exchange." placeholder:"NAME"`
	RoutingKey string `type:"filter" help:"Only those with this routing key." placeholder:"KEY"`
	Header     string `type:"filter" help:"Only those with this header." placeholder:"NAME=VALUE"`
	Since      string `type:"age" help:"Only those that ended since then: an age such as 1h or 7d, or a time of UTC such as 02:10 or 2026-11-29 02:10." placeholder:"WHEN"`
	Until      string `type:"age" help:"Only those that ended until then, such as 10m or 02:30." placeholder:"WHEN"`
}

// DeadLetterText is a filter of dead letters as people write it.
type DeadLetterText struct {
	Producer  string `type:"filter" help:"Only those of this producer." placeholder:"NAME"`
	Consumer  string `type:"filter" help:"Only those that consumers of this queue, topic or stream gave up." placeholder:"QUEUE"`
	Exchange  string `type:"filter" help:"Only those that were published to this exchange, topic or stream." placeholder:"NAME"`
	Cause     string `type:"filter" help:"Only those whose first cause or reason contains this text, ignoring case." placeholder:"TEXT"`
	OlderThan string `type:"age" help:"Only those that first failed at least so long ago, such as 10m." placeholder:"DURATION"`
}

// TextError says which text cannot be read, and how it is written.
type TextError struct {
	// Field is the name of the text, as a flag has it.
	Field, Value string
	// Err says how the text is written.
	Err error
}

// Error names the text.
func (e *TextError) Error() string { return fmt.Sprintf("%s=%s: %v", e.Field, e.Value, e.Err) }

// Unwrap returns how the text is written.
func (e *TextError) Unwrap() error { return e.Err }

var (
	errHeader = errors.New("write NAME=VALUE, such as tenant=nordic")
	errState  = errors.New("messages stand in the states pending, sendable, abandoned, dead and acknowledged")
	errEnding = errors.New("messages end as done, rolled_back or discarded")
)

// Filter reads the filter. Without a state the filter has none.
func (t MessageText) Filter() (*adminv1.MessageFilter, error) {
	state, err := ParseState(t.State)
	age, wrongAge := parseAge("older-than", t.OlderThan)
	if err = cmp.Or(err, wrongAge, checkHeader(t.Header)); err != nil {
		return nil, err
	}
	return &adminv1.MessageFilter{
		State: state, Producer: t.Producer, Broker: t.Broker, Exchange: t.Exchange, RoutingKey: t.RoutingKey,
		IdPrefix: t.ID, Header: t.Header, Cause: t.Cause, ErrorContains: t.Error, MinAge: age,
	}, nil
}

// Words describe the filter, to follow the word messages.
func (t MessageText) Words() string {
	var words strings.Builder
	for _, part := range []struct{ format, value string }{
		{" of %s", t.Producer},
		{" to exchange %s", t.Exchange},
		{" for broker %s", t.Broker},
		{" older than %s", t.OlderThan},
		{" whose last error contains %q", t.Error},
		{" with a cause like %q", t.Cause},
		{" whose ids begin with %q", t.ID},
		{" with the routing key %q", t.RoutingKey},
		{" with the header %q", t.Header},
	} {
		if part.value != "" {
			fmt.Fprintf(&words, part.format, part.value)
		}
	}
	return words.String()
}

// Filter reads the filter as of now.
func (t FinishedText) Filter(now time.Time) (*adminv1.FinishedFilter, error) {
	ending, known := adminv1.Ending_value["ENDING_"+strings.ToUpper(t.State)]
	if known = known && ending != 0 || t.State == ""; !known {
		return nil, &TextError{"state", t.State, errEnding}
	}
	from, to, err := ParseSpan(t.Since, t.Until, now)
	if err = cmp.Or(err, checkHeader(t.Header)); err != nil {
		return nil, err
	}
	return &adminv1.FinishedFilter{
		Producer: t.Producer, Id: t.ID, Ending: adminv1.Ending(ending), Exchange: t.Exchange, RoutingKey: t.RoutingKey,
		Header: t.Header, Since: from, Until: to,
	}, nil
}

// Filter reads the filter.
func (t DeadLetterText) Filter() (*adminv1.DeadLetterFilter, error) {
	age, err := parseAge("older-than", t.OlderThan)
	if err != nil {
		return nil, err
	}
	return &adminv1.DeadLetterFilter{
		Producer: t.Producer, Consumer: t.Consumer, Exchange: t.Exchange, CauseContains: t.Cause, MinAge: age,
	}, nil
}

// ParseState reads the name of a state in which messages stand; an empty name is no state.
func ParseState(name string) (msghandlerv1.State, error) {
	if name == "" {
		return msghandlerv1.State_STATE_UNSPECIFIED, nil
	}
	for _, state := range halfmsg.Unfinished() {
		if state.String() == name {
			return msghandlerv1.State(state), nil
		}
	}
	return msghandlerv1.State_STATE_UNSPECIFIED, &TextError{"state", name, errState}
}

func checkHeader(header string) error {
	if name, _, found := strings.Cut(header, "="); header != "" && (!found || name == "") {
		return &TextError{"header", header, errHeader}
	}
	return nil
}

// CountedMessages narrows a filter to messages that were there at the time of a count. Messages that were stored, or
// came of age, later would take the place of counted messages that have gone meanwhile. The filter has an age, and no
// time, so that only the store's clock decides.
func CountedMessages(f *adminv1.MessageFilter, counted time.Time) *adminv1.MessageFilter {
	f = proto.CloneOf(f)
	f.MinAge = durationpb.New(f.GetMinAge().AsDuration() + time.Since(counted))
	return f
}

// CountedDeadLetters narrows a filter likewise: no letter comes of age after the count. New letters are behind the
// counted.
func CountedDeadLetters(f *adminv1.DeadLetterFilter, counted time.Time) *adminv1.DeadLetterFilter {
	f = proto.CloneOf(f)
	if f.GetMinAge() != nil {
		f.MinAge = durationpb.New(f.GetMinAge().AsDuration() + time.Since(counted))
	}
	return f
}

// CountedFinished narrows a filter to messages that had ended at the time of a count. Those that end later were not
// counted, and may be the replayed ones: a time of --until may be in the future.
func CountedFinished(f *adminv1.FinishedFilter, counted time.Time) *adminv1.FinishedFilter {
	f = proto.CloneOf(f)
	if f.GetUntil() == nil || f.GetUntil().AsTime().After(counted) {
		f.Until = timestamppb.New(counted)
	}
	return f
}

// Word is the value of an enum of the API in small letters and without the name of the enum, such as given_up; empty
// for the value 0.
func Word(e protoreflect.Enum) string {
	values := e.Descriptor().Values()
	value := values.ByNumber(e.Number())
	switch {
	case value == nil: // of a newer coordinator
		return strconv.Itoa(int(e.Number()))
	case e.Number() == 0:
		return ""
	}
	prefix := strings.TrimSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
	return strings.ToLower(strings.TrimPrefix(string(value.Name()), prefix))
}
