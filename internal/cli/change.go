package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// selection says which messages are to be changed: those named, or those that match.
type selection struct {
	Names    []string `arg:"" optional:"" help:"The messages, such as orders/1001." name:"PRODUCER/ID"`
	State    string   `help:"Instead of names: all messages in this state." placeholder:"STATE"`
	Producer string   `help:"With --state: only those of this producer." placeholder:"NAME"`
	Limit    int      `default:"1000" help:"With --state: how many at most."`
	Yes      bool     `short:"y" help:"With --state: do not ask."`
	Reason   string   `help:"Why, for the coordinator's log." placeholder:"TEXT"`
}

type retryCommand struct {
	adminFlags
	selection
}

// Run makes messages due now.
func (c *retryCommand) Run(ctx context.Context, s *session) error {
	return change{
		adminFlags: c.adminFlags, selection: c.selection, verb: "Retry", done: "retried",
		send: func(ctx context.Context, a *admin, w *wanted) (answer, error) {
			response, err := call(ctx, a, a.client.RetryMessages, &msghandlerv1.RetryMessagesRequest{
				Names: w.names, State: w.state, Producer: w.producer, Limit: w.limit, Reason: c.Reason,
			})
			return answer{response.GetRetried(), response.GetMore(), response.GetOutcomes()}, err
		},
	}.run(ctx, s)
}

type discardCommand struct {
	adminFlags
	selection
}

// Run removes messages for good.
func (c *discardCommand) Run(ctx context.Context, s *session) error {
	return change{
		adminFlags: c.adminFlags, selection: c.selection, verb: "Discard", done: "discarded",
		send: func(ctx context.Context, a *admin, w *wanted) (answer, error) {
			response, err := call(ctx, a, a.client.DiscardMessages, &msghandlerv1.DiscardMessagesRequest{
				Names: w.names, State: w.state, Producer: w.producer, Limit: w.limit, Reason: c.Reason,
			})
			return answer{response.GetDiscarded(), response.GetMore(), response.GetOutcomes()}, err
		},
	}.run(ctx, s)
}

// change is what retry and discard have in common.
type change struct {
	adminFlags
	selection
	verb, done string
	send       func(ctx context.Context, a *admin, w *wanted) (answer, error)
}

// answer is what became of one request.
type answer struct {
	changed  int64
	more     bool
	outcomes []*msghandlerv1.Outcome
}

// wanted is one request: names, or a filter.
type wanted struct {
	names    []*msghandlerv1.MessageName
	state    msghandlerv1.State
	producer string
	limit    int32
}

func (c change) run(ctx context.Context, s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	names, err := parseNames(c.Names)
	if err != nil {
		return err
	}
	a, err := c.connect(s)
	if err != nil {
		return err
	}
	defer a.Close()
	if len(names) > 0 {
		return c.byName(ctx, s, a, names)
	}
	return c.byFilter(ctx, s, a)
}

func (c change) check() error {
	switch {
	case len(c.Names) > 0 && (c.State != "" || c.Producer != ""):
		return usageError{errors.New("give either names or --state and --producer, not both")}
	case len(c.Names) == 0 && c.State == "":
		return usageError{errors.New("which messages? Name them (orders/1001), or give --state")}
	case c.Limit < 1:
		return usageError{fmt.Errorf("--limit=%d: at least one", c.Limit)}
	}
	return nil
}

// byName changes the messages that were named, and says of those that could not be changed why not.
func (c change) byName(ctx context.Context, s *session, a *admin, names []*msghandlerv1.MessageName) error {
	var changed int64
	var failures []error
	for part := range slices.Chunk(names, maxPage) {
		got, err := c.send(ctx, a, &wanted{names: part})
		if err != nil {
			failures = append(failures, err)
			break
		}
		changed += got.changed
		for i, outcome := range got.outcomes {
			if err := a.explain(status.FromProto(&spb.Status{Code: outcome.GetCode(), Message: outcome.GetError()}).Err()); err != nil {
				failures = append(failures, fmt.Errorf("%s/%s: %w", part[i].GetProducer(), part[i].GetId(), err))
			}
		}
	}
	return errors.Join(c.tell(s, changed, false), errors.Join(failures...))
}

// byFilter changes the messages that match, after asking.
func (c change) byFilter(ctx context.Context, s *session, a *admin) error {
	state, err := parseState(c.State)
	if err != nil {
		return err
	}
	if !c.Yes {
		agreed, err := c.ask(ctx, s, a, state)
		if err != nil || !agreed {
			return err
		}
	}
	var changed int64
	more := true
	for more && changed < int64(c.Limit) {
		var got answer
		w := &wanted{state: msghandlerv1.State(state), producer: c.Producer}
		w.limit = int32(min(int64(c.Limit)-changed, maxPage)) //nolint:gosec // at most maxPage
		if got, err = c.send(ctx, a, w); err != nil {
			return errors.Join(c.tell(s, changed, true), err)
		}
		changed += got.changed
		more = got.more
		// Retried messages of some states match again: one round is all that such a filter can do.
		if got.changed < int64(w.limit) || !c.leaves(state) {
			break
		}
	}
	return c.tell(s, changed, more)
}

// leaves says whether a message that was changed no longer matches its state.
func (c change) leaves(state halfmsg.State) bool {
	event := halfmsg.EventDiscard
	if c.done == "retried" {
		event = halfmsg.EventRetry
	}
	to, _ := halfmsg.Next(state, event)
	return to != state
}

// ask shows how many messages match and asks whether to go on.
func (c change) ask(ctx context.Context, s *session, a *admin, state halfmsg.State) (bool, error) {
	if !isTerminal(s.In) {
		return false, usageError{errors.New("there is no terminal to ask on; add --yes when you are sure")}
	}
	found, err := a.list(ctx, state, c.Producer, c.Limit)
	if err != nil {
		return false, err
	}
	of := ""
	if c.Producer != "" {
		of = " of " + c.Producer
	}
	_, _ = fmt.Fprintf(s.Err, "%s %d %s messages%s? [y/N] ", c.verb, len(found), state, of)
	answer, err := bufio.NewReader(s.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	if answer != "y" && answer != "yes" {
		return false, errors.New("nothing was changed")
	}
	return true, nil
}

// tell prints what was done.
func (c change) tell(s *session, changed int64, more bool) error {
	if c.Output == outputJSON {
		return s.printJSON(map[string]any{c.done: changed, "more": more})
	}
	text := fmt.Sprintf("%s %d", c.done, changed)
	if more {
		text += "; more match, run it again or raise --limit"
	}
	_, err := fmt.Fprintln(s.Out, text)
	return err
}

// isTerminal says whether there is a person at the other end of an input or output.
func isTerminal(stream any) bool {
	file, is := stream.(*os.File)
	if !is {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
