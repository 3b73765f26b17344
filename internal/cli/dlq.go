package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// dlqCommand manages the dead letters of consumers, on any broker.
type dlqCommand struct {
	Queues  dlqQueuesCommand  `cmd:"" help:"List the queues of dead letters, and count their letters."`
	List    dlqListCommand    `cmd:"" help:"List dead letters, oldest first."`
	Count   dlqCountCommand   `cmd:"" help:"Count dead letters by consumer, exchange, routing key and cause."`
	Show    dlqShowCommand    `cmd:"" help:"Show one dead letter."`
	Replay  dlqReplayCommand  `cmd:"" help:"Publish dead letters once more, to their original exchange and routing key."`
	Discard dlqDiscardCommand `cmd:"" help:"Remove dead letters for good."`
}

// dlqFlags are the flags of every command about dead letters.
type dlqFlags struct {
	commandline.CoordinatorFlags
	dlqDirectFlags
	Queue   string        `required:"" help:"Where the dead letters are: NAME of dead_letters.NAME in the configuration. With --direct also a queue or a topic, such as payments.dead, or a stream, such as DEAD." placeholder:"NAME"`
	Timeout time.Duration `default:"1m" help:"How long the whole may take."`
	Output  string        `short:"o" default:"table" enum:"table,json,yaml" help:"table for people, json or yaml for programs."`
}

// letters runs work on the dead letters.
func (f *dlqFlags) letters(
	ctx context.Context, s *commandline.Session, work func(context.Context, operate.DeadLetterDesk) error,
) error {
	if f.Queue == "" {
		return commandline.UsageError{Err: errors.New("--queue is empty; name the queue, topic or stream " +
			"of the dead letters, such as payments; msghandler dlq queues lists them")}
	}
	if err := commandline.Positive("timeout", f.Timeout); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	if f.Direct {
		desk, err := f.open(s, f.Queue)
		if err != nil {
			return commandline.UsageError{Err: err}
		}
		err = f.explain(work(ctx, desk))
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil {
			return fmt.Errorf("--timeout=%s was over before the broker had answered about %s; raise it (%w)",
				f.Timeout, f.Queue, err)
		}
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	a, err := connectWithin(s, &f.CoordinatorFlags, f.Timeout)
	if err != nil {
		return err
	}
	defer a.Close()
	return work(ctx, a.client)
}

// letterNames reads names. Letters of other programs may have any name, and no id.
func letterNames(typed ...string) (names []*adminv1.MessageName, err error) {
	for _, name := range typed {
		producer, id, found := strings.Cut(name, "/")
		if !found {
			return nil, commandline.UsageError{Err: fmt.Errorf("%q does not name a dead letter; "+
				"write PRODUCER/ID, such as orders/1001, or PRODUCER/ for dead letters without an id", name)}
		}
		names = append(names, &adminv1.MessageName{Producer: producer, Id: id})
	}
	return names, nil
}

// letter is a dead letter in --output json. The names of its fields are part of the product.
type letter struct {
	Producer     string            `json:"producer"`
	ID           string            `json:"id"`
	Queue        string            `json:"queue,omitempty"`
	Reason       string            `json:"reason,omitempty"`
	FirstCause   string            `json:"first_cause,omitempty"`
	WaitingSince *time.Time        `json:"waiting_since,omitempty"`
	Retries      int32             `json:"retries"`
	Attempt      int32             `json:"attempt"`
	Exchange     string            `json:"exchange"`
	RoutingKey   string            `json:"routing_key"`
	ContentType  string            `json:"content_type,omitempty"`
	Headers      map[string]string `json:"headers,omitempty"`
	// Body holds a body of text, BodyBase64 every other body. A list has neither.
	Body       string `json:"body,omitempty"`
	BodyBase64 string `json:"body_base64,omitempty"`
}

func newLetter(l *adminv1.DeadLetter) letter {
	m := l.GetMessage()
	out := letter{
		Producer: l.GetProducer(), ID: m.GetId(), Queue: l.GetConsumer(), Reason: l.GetReason(),
		FirstCause: l.GetFirstCause(), WaitingSince: moment(l.GetSinceTime()), Retries: l.GetRetries(),
		Attempt: l.GetAttempt(), Exchange: m.GetExchange(), RoutingKey: m.GetRoutingKey(),
		ContentType: m.GetContentType(), Headers: m.GetHeaders(),
	}
	out.Body, out.BodyBase64 = documentBody(m.GetBody())
	return out
}

// waiting is the age of a letter, for a table.
func waiting(since *time.Time, now time.Time) string {
	if since == nil {
		return "-"
	}
	return age(*since, now)
}

type dlqShowCommand struct {
	dlqFlags
	Name string `arg:"" help:"The message, such as orders/1001." name:"PRODUCER/ID"`
}

// Run prints a dead letter.
func (c *dlqShowCommand) Run(ctx context.Context, s *commandline.Session) error {
	names, err := letterNames(c.Name)
	if err != nil {
		return err
	}
	return c.letters(ctx, s, func(ctx context.Context, desk operate.DeadLetterDesk) error {
		found, err := desk.GetDeadLetter(ctx, &adminv1.GetDeadLetterRequest{
			Queue: c.Queue, Producer: names[0].GetProducer(), Id: names[0].GetId(),
		})
		if err != nil {
			return err
		}
		l := newLetter(found.GetLetter())
		body := found.GetLetter().GetMessage().GetBody()
		if err := s.PrintDocument(c.Output, l, func() [][]string { return l.describe(len(body)) }); err != nil {
			return err
		}
		return printBody(s, c.Output, body)
	})
}

// describe is the letter for people.
func (l *letter) describe(bytes int) [][]string {
	return [][]string{
		{"message", l.Producer + "/" + l.ID},
		{"queue", l.Queue},
		{"exchange", l.Exchange},
		{"routing key", l.RoutingKey},
		{"reason", l.Reason},
		{"first cause", l.FirstCause},
		{"waiting", waiting(l.WaitingSince, time.Now())},
		{"retries", strconv.Itoa(int(l.Retries))},
		{"body", fmt.Sprintf("%d bytes", bytes)},
	}
}
