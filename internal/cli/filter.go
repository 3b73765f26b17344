package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// filterFlags say which messages are meant, where they are not named.
type filterFlags struct {
	State      string        `help:"Messages in this state: pending, sendable, abandoned, dead or acknowledged." placeholder:"STATE"`
	Producer   string        `help:"Only those of this producer." placeholder:"NAME"`
	Exchange   string        `help:"Only those that go to this exchange." placeholder:"NAME"`
	Broker     string        `help:"Only those for this broker, of brokers.NAME.url; (default): for the broker of amqp.url." placeholder:"NAME"`
	OlderThan  time.Duration `help:"Only those that were stored at least so long ago, such as 10m." placeholder:"DURATION"`
	Error      string        `help:"Only those whose last error contains this text, ignoring case." placeholder:"TEXT"`
	Cause      string        `help:"Only those with this cause, as list --group prints it; (none): those without an error." placeholder:"TEXT"`
	ID         string        `name:"id" help:"Only those whose ids begin with this text." placeholder:"TEXT"`
	RoutingKey string        `help:"Only those with this routing key." placeholder:"KEY"`
	Header     string        `help:"Only those with this header, such as tenant=nordic; needs the role reader." placeholder:"NAME=VALUE"`
}

// String describes the filter, to follow the word messages.
func (f *filterFlags) String() string {
	var words strings.Builder
	for _, part := range []struct{ word, value string }{
		{"of", f.Producer}, {"to exchange", f.Exchange}, {"for broker", f.Broker},
	} {
		if part.value != "" {
			fmt.Fprintf(&words, " %s %s", part.word, part.value)
		}
	}
	if f.OlderThan > 0 {
		fmt.Fprintf(&words, " older than %s", f.OlderThan)
	}
	for _, part := range []struct{ words, value string }{
		{"whose last error contains", f.Error},
		{"with the cause", f.Cause},
		{"whose ids begin with", f.ID},
		{"with the routing key", f.RoutingKey},
		{"with the header", f.Header},
	} {
		if part.value != "" {
			fmt.Fprintf(&words, " %s %q", part.words, part.value)
		}
	}
	return words.String()
}

// check refuses impossible filters.
func (f *filterFlags) check() error {
	return cmp.Or(checkOlderThan(f.OlderThan), checkHeader(f.Header))
}

func checkOlderThan(age time.Duration) error {
	if age < 0 {
		return commandline.UsageError{Err: fmt.Errorf("--older-than=%s: how long ago, such as 10m", age)}
	}
	return nil
}

func checkHeader(header string) error {
	if name, _, found := strings.Cut(header, "="); header != "" && (!found || name == "") {
		return commandline.UsageError{Err: fmt.Errorf("--header=%s: write NAME=VALUE, such as tenant=nordic", header)}
	}
	return nil
}

// minAge is nil where no age is asked for.
func (f *filterFlags) minAge() *durationpb.Duration {
	if f.OlderThan == 0 {
		return nil
	}
	return durationpb.New(f.OlderThan)
}

// states are the states of the filter: the named state, or every state that keeps messages.
func (f *filterFlags) states() ([]halfmsg.State, error) {
	if f.State == "" {
		return halfmsg.Unfinished(), nil
	}
	state, err := parseState(f.State)
	return []halfmsg.State{state}, err
}

// maxPage is the largest page a coordinator gives.
const maxPage = 1000

// list reads up to limit messages of a state, page by page, and says whether there may be more. A message may be on two
// pages when it moves meanwhile; it is given once.
func (a *admin) list(
	ctx context.Context, state halfmsg.State, f *filterFlags, limit int, far *commandline.Progress,
) (records []*adminv1.MessageRecord, more bool, err error) {
	seen := map[string]bool{}
	request := &adminv1.ListMessagesRequest{
		State: msghandlerv1.State(state), Producer: f.Producer, Exchange: f.Exchange, MinAge: f.minAge(),
		ErrorContains: f.Error, Broker: f.Broker, Cause: f.Cause, IdPrefix: f.ID, RoutingKey: f.RoutingKey, Header: f.Header,
	}
	for len(records) < limit {
		request.PageSize = int32(min(limit-len(records), maxPage)) //nolint:gosec // at most maxPage
		response, err := call(ctx, a, a.client.ListMessages, request)
		if err != nil {
			return nil, false, err
		}
		for _, r := range response.GetRecords() {
			if name := r.GetProducer() + "/" + r.GetMessage().GetId(); !seen[name] && len(records) < limit {
				seen[name] = true
				records = append(records, r)
			}
		}
		far.Update("found %d %s messages", len(records), state)
		if request.PageToken = response.GetNextPageToken(); request.GetPageToken() == "" {
			return records, false, nil
		}
	}
	return records, true, nil
}

// parseState reads the state of a flag, which must be a state that keeps messages.
func parseState(name string) (halfmsg.State, error) {
	state, err := halfmsg.ParseState(name)
	if err == nil {
		for _, kept := range halfmsg.Unfinished() {
			if kept == state {
				return state, nil
			}
		}
	}
	return halfmsg.None, commandline.UsageError{Err: fmt.Errorf("--state=%s names no state in which messages stand; "+
		"write pending, sendable, abandoned, dead or acknowledged", name)}
}

func parseNames(typed []string) ([]*adminv1.MessageName, error) {
	names := make([]*adminv1.MessageName, 0, len(typed))
	for _, s := range typed {
		n, err := halfmsg.ParseName(s)
		if err != nil {
			return nil, commandline.UsageError{Err: err}
		}
		names = append(names, &adminv1.MessageName{Producer: n.Producer, Id: n.ID})
	}
	return names, nil
}

// typedNames returns the typed names, or the names on standard input: a question on the terminal is impossible then, so
// the caller must be sure.
func typedNames(s *commandline.Session, typed []string, sure bool) ([]*adminv1.MessageName, error) {
	if !slices.Equal(typed, []string{"-"}) {
		return parseNames(typed)
	}
	names, err := readNames(s.In)
	if err == nil && !sure {
		return nil, commandline.UsageError{Err: fmt.Errorf("%d messages are named on standard input, "+
			"so no question is possible; add --yes when you are sure", len(names))}
	}
	return names, err
}

// readNames reads names, the first word of each line, so that what list prints can be handed on. Lines without a word,
// and the header of a table, are passed over.
func readNames(in io.Reader) ([]*adminv1.MessageName, error) {
	var words []string
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 0 && fields[0] != listHeader[0] {
			words = append(words, fields[0])
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read names from standard input: %w", err)
	}
	if len(words) == 0 {
		return nil, commandline.UsageError{
			Err: errors.New("there is no name on standard input; write a name a line, such as orders/1001"),
		}
	}
	return parseNames(words)
}
