package callback

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/loglimit"
	"github.com/msghandler/msghandler/proto/certs"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// Confirm implements halfmsg.Callbacks.
func (c *Client) Confirm(
	ctx context.Context, to halfmsg.Target, ids []string, final bool,
) (map[string]halfmsg.Verdict, error) {
	verdicts := make(map[string]halfmsg.Verdict, len(ids))
	err := c.call(ctx, "Confirm", to, ids, func(ctx context.Context, producer transport, ids []string) error {
		request := &msghandlerv1.ConfirmRequest{
			Producer: to.Producer, Ids: ids, Final: final, MarkerStore: to.MarkerStore,
		}
		answer, err := producer.Confirm(ctx, request)
		if err != nil {
			return err
		}
		if store := answer.GetMarkerStore(); to.MarkerStore != "" && store != to.MarkerStore {
			c.config.Split(to.Producer, to.MarkerStore, printable(store))
			return otherStore(to.MarkerStore, store)
		}
		if odd := judgeConfirmations(verdicts, ids, answer.GetConfirmations()); odd.any() {
			c.failures.Add(odd.failure(to))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return verdicts, nil
}

// DeleteBusiness implements halfmsg.Callbacks.
func (c *Client) DeleteBusiness(ctx context.Context, to halfmsg.Target, ids []string) error {
	return c.call(ctx, "DeleteBusiness", to, ids, func(ctx context.Context, producer transport, ids []string) error {
		request := &msghandlerv1.DeleteBusinessRequest{Producer: to.Producer, Ids: ids, MarkerStore: to.MarkerStore}
		_, err := producer.DeleteBusiness(ctx, request)
		return err
	})
}

// otherStore is the error of an answer from another marker store than the messages name. Nothing in such an answer is
// about the messages, so the code is that of an unreachable producer.
func otherStore(named, answered string) error {
	return status.Errorf(codes.Unavailable, "the messages name the marker store %s, and %s has answered", named,
		cmp.Or(printable(answered), "a store without an identity"))
}

// Open returns a client for a producer's own answers, for doctor, which examines them: unjudged, and with requests of
// any form. Deadlines are the caller's. release must be called when the last call has ended.
func (c *Client) Open(to halfmsg.Target) (producer msghandlerv1.ProducerServiceClient, release func(), err error) {
	t, err := c.resolve(to.Producer, to.Address)
	if err != nil {
		return nil, nil, err
	}
	conn, err := c.conns.get(t)
	if err != nil {
		return nil, nil, err
	}
	shown := withToken{producer: conn, token: func() string { return c.config.Token(to.Producer) }}
	return shown, func() { c.conns.release(conn) }, nil
}

// call makes calls to a target, each with a batch of the ids and a deadline of its own. The target is checked again:
// the configuration may have changed since the target was stored.
func (c *Client) call(
	ctx context.Context, method string, to halfmsg.Target, ids []string,
	do func(ctx context.Context, producer transport, ids []string) error,
) error {
	t, err := c.resolve(to.Producer, to.Address)
	if err != nil {
		return err
	}
	conn, err := c.conns.get(t)
	if err != nil {
		return fmt.Errorf("%s of producer %s at %s: %w", method, to.Producer, t, err)
	}
	defer c.conns.release(conn)
	token := c.config.Token(to.Producer)
	ctx = certs.WithToken(ctx, token)
	for part := range slices.Chunk(ids, c.config.MaxBatch) {
		if err := c.once(ctx, conn, part, do); err != nil {
			return &CallError{
				Method: method, Producer: to.Producer, Target: t.String(), Timeout: c.config.Timeout,
				Reached: reached(status.Code(err)), kind: t.kind, token: token, err: err,
			}
		}
	}
	return nil
}

func (c *Client) once(
	ctx context.Context, producer transport, ids []string,
	do func(ctx context.Context, producer transport, ids []string) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	return do(ctx, producer, ids)
}

// oddities counts the faults of an answer.
type oddities struct {
	contradictory int
	notAsked      int
	noVerdict     int
}

func (o oddities) any() bool { return o != oddities{} }

// failure is the log line about odd answers.
func (o oddities) failure(to halfmsg.Target) loglimit.Failure {
	return loglimit.Failure{
		Level: slog.LevelWarn, Text: "answers of a producer to Confirm are odd; doubtful messages wait; fix the producer",
		Producer: to.Producer, Cause: "answers are contradictory, about other messages, or no verdict",
		More: []slog.Attr{
			slog.String("target", to.Address), slog.Int("contradictory", o.contradictory),
			slog.Int("not_asked", o.notAsked), slog.Int("no_verdict", o.noVerdict),
		},
	}
}

// judgeConfirmations enters a verdict for every id of the request. A doubt is never a verdict: an id without an answer,
// with contradictory answers, or with a value outside the contract is UNKNOWN.
func judgeConfirmations(
	verdicts map[string]halfmsg.Verdict, asked []string, answers []*msghandlerv1.Confirmation,
) oddities {
	var odd oddities
	said := make(map[string]halfmsg.Verdict, len(answers))
	for _, answer := range answers {
		verdict, ok := verdictOf(answer.GetVerdict())
		if !ok {
			odd.noVerdict++
		}
		if before, twice := said[answer.GetId()]; twice && before != verdict {
			odd.contradictory++
			verdict = halfmsg.VerdictUnknown
		}
		said[answer.GetId()] = verdict
	}
	for _, id := range asked {
		verdict, ok := said[id]
		if !ok {
			verdict = halfmsg.VerdictUnknown
		}
		verdicts[id] = verdict
	}
	for id := range said {
		if _, ok := verdicts[id]; !ok {
			odd.notAsked++
		}
	}
	return odd
}

func verdictOf(v msghandlerv1.Verdict) (verdict halfmsg.Verdict, ok bool) {
	switch v {
	case msghandlerv1.Verdict_VERDICT_COMMITTED:
		return halfmsg.VerdictCommitted, true
	case msghandlerv1.Verdict_VERDICT_ROLLED_BACK:
		return halfmsg.VerdictRolledBack, true
	case msghandlerv1.Verdict_VERDICT_UNKNOWN:
		return halfmsg.VerdictUnknown, true
	case msghandlerv1.Verdict_VERDICT_UNAVAILABLE:
		return halfmsg.VerdictUnavailable, true
	}
	return halfmsg.VerdictUnknown, false
}
