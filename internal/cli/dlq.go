package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/cli/commandline"
)

// dlqCommand manages the dead letters of consumers, on any broker and without a coordinator.
type dlqCommand struct {
	List    dlqListCommand    `cmd:"" help:"List dead letters, oldest first."`
	Count   dlqCountCommand   `cmd:"" help:"Count dead letters by consumer, exchange, routing key and cause."`
	Show    dlqShowCommand    `cmd:"" help:"Show one dead letter."`
	Replay  dlqReplayCommand  `cmd:"" help:"Publish dead letters once more, to their original exchange and routing key."`
	Discard dlqDiscardCommand `cmd:"" help:"Remove dead letters for good."`
}

// dlqFlags are the flags of every command about dead letters.
type dlqFlags struct {
	dlqBrokerFlags
	Queue   string        `required:"" help:"Where the dead letters are: NAME of dead_letters.NAME in the configuration; else a queue or a topic, such as payments.dead, or a stream, such as DEAD." placeholder:"NAME"`
	Timeout time.Duration `default:"1m" help:"How long the whole may take."`
	Output  string        `default:"table" enum:"table,json,yaml" help:"table for people, json or yaml for programs."`
}

// letters runs work on the dead letters, and turns the error into an error for people.
func (f *dlqFlags) letters(
	ctx context.Context, s *commandline.Session, work func(context.Context, letterBox) error,
) error {
	if err := commandline.Positive("timeout", f.Timeout); err != nil {
		return err
	}
	if f.Queue == "" {
		return commandline.UsageError{Err: errors.New("--queue is empty; name the queue, topic or stream " +
			"of the dead letters, such as payments.dead")}
	}
	dead, err := f.open(s, f.Queue)
	if err != nil {
		return commandline.UsageError{Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	err = work(ctx, dead)
	if errors.Is(err, consumer.ErrNoLetter) {
		return commandline.NotFoundError{Err: err}
	}
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Errorf("cannot reach the broker: is it running? Name another with --url or --broker (%w)", err)
	}
	return err
}

// checkLetters refuses names without a slash. Letters of other programs may have any name, and no id.
func checkLetters(names ...string) error {
	for _, name := range names {
		if !strings.Contains(name, "/") {
			return commandline.UsageError{Err: fmt.Errorf("%q does not name a dead letter; "+
				"write PRODUCER/ID, such as orders/1001, or PRODUCER/ for letters without an id", name)}
		}
	}
	return nil
}

// letter is a dead letter in --output json. The names of its fields are part of the product.
type letter struct {
	Producer      string            `json:"producer"`
	ID            string            `json:"id"`
	Queue         string            `json:"queue,omitempty"`
	Reason        string            `json:"reason,omitempty"`
	FirstCause    string            `json:"first_cause,omitempty"`
	FirstFailedAt string            `json:"first_failed_at,omitempty"`
	WaitingSince  time.Time         `json:"waiting_since,omitzero"`
	Retries       int               `json:"retries"`
	Attempt       int               `json:"attempt"`
	Exchange      string            `json:"exchange"`
	RoutingKey    string            `json:"routing_key"`
	ContentType   string            `json:"content_type,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	// Body holds a body of text, BodyBase64 every other body.
	Body       string `json:"body,omitempty"`
	BodyBase64 string `json:"body_base64,omitempty"`
}

func newLetter(l *consumer.Letter) letter {
	out := letter{
		Producer: l.Producer, ID: l.ID, Queue: l.Queue, Reason: l.Reason, FirstCause: l.FirstCause,
		FirstFailedAt: l.FirstFailedAt, WaitingSince: l.Since().UTC(), Retries: l.Retries, Attempt: l.Attempt,
		Exchange: l.Exchange, RoutingKey: l.RoutingKey, ContentType: l.ContentType, Headers: l.Headers,
	}
	out.Body, out.BodyBase64 = documentBody(l.Body)
	return out
}

type dlqShowCommand struct {
	dlqFlags
	Name string `arg:"" help:"The message, such as orders/1001." name:"PRODUCER/ID"`
}

// Run prints a dead letter.
func (c *dlqShowCommand) Run(ctx context.Context, s *commandline.Session) error {
	if err := checkLetters(c.Name); err != nil {
		return err
	}
	return c.letters(ctx, s, func(ctx context.Context, dead letterBox) error {
		l, err := dead.Show(ctx, c.Name)
		if err != nil {
			return err
		}
		if err := s.PrintDocument(c.Output, newLetter(&l), func() [][]string { return describeLetter(l) }); err != nil {
			return err
		}
		return printBody(s, c.Output, l.Body)
	})
}

func describeLetter(l consumer.Letter) [][]string {
	return [][]string{
		{"message", l.Name()},
		{"queue", l.Queue},
		{"exchange", l.Exchange},
		{"routing key", l.RoutingKey},
		{"reason", l.Reason},
		{"first cause", l.FirstCause},
		{"first failed", l.FirstFailedAt},
		{"waiting", age(l.Since(), time.Now())},
		{"retries", strconv.Itoa(l.Retries)},
		{"body", fmt.Sprintf("%d bytes", len(l.Body))},
	}
}
