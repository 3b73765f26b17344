package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/escape"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

type tailCommand struct {
	serverFlags
	Output   string   `short:"o" default:"table" enum:"table,json" help:"table for people; json, a document a line, for programs."`
	Producer string   `help:"Only messages of this producer." placeholder:"NAME"`
	State    []string `help:"Only those that reach one of these states, such as done,dead." placeholder:"STATE"`
	Limit    int      `help:"End after so many; 0 goes on until interrupted." default:"0"`
}

// Help returns the text below the usage in --help.
func (c *tailCommand) Help() string {
	return `tail prints a line for each message that this coordinator stores, and for each of its moves to another state.
Other coordinators print their own. A discarded message is printed as gone. Moves that come faster than tail can print
are left out, and counted on standard error. No message waits for a tail.`
}

// move is a message that has reached a state, in --output json.
type move struct {
	Time     time.Time `json:"time"`
	Producer string    `json:"producer"`
	ID       string    `json:"id"`
	State    string    `json:"state"`
}

// Run prints moves until an interrupt.
func (c *tailCommand) Run(ctx context.Context, s *commandline.Session) error {
	if c.Limit < 0 {
		return commandline.UsageError{Err: fmt.Errorf("--limit=%d: at least one, or 0 for no end", c.Limit)}
	}
	states, err := c.states()
	if err != nil {
		return err
	}
	a, err := c.connect(s)
	if err != nil {
		return err
	}
	defer a.Close()
	ctx, stop := commandline.Interruptible(ctx)
	defer stop()
	printed := 0
	err = a.tail(ctx, &adminv1.TailMessagesRequest{Producer: c.Producer, States: states},
		func(news *adminv1.TailMessagesResponse) error {
			for _, m := range news.GetMoves() {
				if err := c.print(s, m); err != nil {
					return err
				}
				if printed++; printed == c.Limit {
					return io.EOF
				}
			}
			if n := news.GetMissedMoves(); n > 0 {
				fmt.Fprintf(s.Err, "%d moves were left out\n", n)
			}
			return nil
		})
	if ctx.Err() != nil {
		return nil // an interrupt ends tail without an error
	}
	return err
}

// states reads the states of a flag, which may be final.
func (c *tailCommand) states() (states []msghandlerv1.State, err error) {
	for _, name := range c.State {
		state, err := halfmsg.ParseState(name)
		if err != nil {
			return nil, commandline.UsageError{
				Err: fmt.Errorf("--state=%s: %w; write one of %s", name, err, strings.Join(stateNames(), ", ")),
			}
		}
		states = append(states, msghandlerv1.State(state))
	}
	return states, nil
}

// stateNames are the names of all states that a message can reach.
func stateNames() (names []string) {
	for _, state := range halfmsg.States() {
		if state != halfmsg.None {
			names = append(names, state.String())
		}
	}
	return names
}

func (c *tailCommand) print(s *commandline.Session, m *adminv1.Move) error {
	line := move{m.GetTime().AsTime(), m.GetProducer(), m.GetId(), reached(m.GetState())}
	if c.Output == commandline.OutputJSON {
		return s.PrintJSONLine(line)
	}
	_, err := fmt.Fprintf(s.Out, "%s  %-12s %s/%s\n", line.Time.Format("15:04:05.000 UTC"), line.State,
		escape.Line(line.Producer), escape.Line(line.ID))
	return err
}

// reached names the state that a message has reached; a discarded message is in no state.
func reached(s msghandlerv1.State) string {
	if s == msghandlerv1.State_STATE_UNSPECIFIED {
		return "gone"
	}
	return stateName(s)
}

// tail calls each for every answer, until the context ends, each fails or the stream ends; io.EOF is an end without a
// failure.
func (a *admin) tail(
	ctx context.Context, request *adminv1.TailMessagesRequest, each func(*adminv1.TailMessagesResponse) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := listen(ctx, cancel, a, request)
	for err == nil {
		var news *adminv1.TailMessagesResponse
		if news, err = stream.Recv(); err != nil {
			break
		}
		if failure := each(news); errors.Is(failure, io.EOF) {
			return nil
		} else if failure != nil {
			return failure
		}
	}
	return a.explain(err)
}

// listen opens the stream, which must begin within the timeout of a call; otherwise listen cancels the context. A
// deadline would end the stream as well.
func listen(
	ctx context.Context, cancel context.CancelFunc, a *admin, request *adminv1.TailMessagesRequest,
) (grpc.ServerStreamingClient[adminv1.TailMessagesResponse], error) {
	late := time.AfterFunc(a.timeout, cancel)
	stream, err := a.client.TailMessages(ctx, request)
	if err == nil {
		_, err = stream.Header()
	}
	if !late.Stop() {
		return nil, status.FromContextError(context.DeadlineExceeded).Err()
	}
	return stream, err
}
