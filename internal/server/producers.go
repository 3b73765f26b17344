package server

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// producers is MessageHandlerService.
type producers struct {
	msghandlerv1.UnimplementedMessageHandlerServiceServer
	*Server
}

// origin is what the messages of one request have in common: who sends them, where he is called back and when.
type origin struct {
	producer     string
	target       string
	confirmAfter time.Duration
	trace        string
}

// origin checks the part of a request that is not about one message.
func (s *Server) origin(
	ctx context.Context, c *check, producer, target string, confirmAfter *durationpb.Duration,
) (origin, error) {
	o := origin{producer: producer, confirmAfter: s.config.ConfirmAfter, trace: traceOf(ctx)}
	c.producer("producer", producer)
	if confirmAfter != nil {
		o.confirmAfter = c.duration("confirm_after", confirmAfter, maxConfirmAfter)
	}
	resolved, err := s.config.Targets.Resolve(producer, target)
	switch {
	case errors.Is(err, halfmsg.ErrForbidden) && c.found == nil:
		return o, err
	case err != nil:
		c.fail("callback_target", "is not usable: %s", err)
	case target != "":
		// Where the request names none, none is stored: the one configured when the time comes is asked.
		o.target = resolved
	}
	return o, nil
}

// build checks a message and makes it the domain's.
func (s *Server) build(c *check, o origin, m *msghandlerv1.Message) halfmsg.Message {
	if m == nil {
		c.fail("", "must be set")
		return halfmsg.Message{}
	}
	c.path += "."
	c.message(m, s.config.Limits.Body)
	return halfmsg.Message{
		Name:     halfmsg.Name{Producer: o.producer, ID: m.GetId()},
		Exchange: m.GetExchange(), RoutingKey: m.GetRoutingKey(),
		ContentType: m.GetContentType(), Headers: m.GetHeaders(), Body: m.GetBody(),
		Delay:          c.duration("delay", m.GetDelay(), maxDelay),
		CallbackTarget: o.target, ConfirmAfter: o.confirmAfter, Trace: o.trace,
	}
}

// SendHalfMessage implements MessageHandlerService.
func (s *producers) SendHalfMessage(
	ctx context.Context, r *msghandlerv1.SendHalfMessageRequest,
) (*msghandlerv1.SendHalfMessageResponse, error) {
	const call = "SendHalfMessage"
	c := &check{}
	o, err := s.origin(ctx, c, r.GetProducer(), r.GetCallbackTarget(), r.GetConfirmAfter())
	if err != nil {
		return nil, s.refuse(r.GetProducer(), err)
	}
	c.path = "message"
	message := s.build(c, o, r.GetMessage())
	if err := c.err(); err != nil {
		return nil, s.refuse(r.GetProducer(), err)
	}
	result, err := gathered(ctx, s.creates, message)
	if err = errors.Join(err, result.Err); err != nil {
		return nil, s.fail(call, err, result.State)
	}
	return &msghandlerv1.SendHalfMessageResponse{State: msghandlerv1.State(result.State)}, nil
}

// SendHalfMessages implements MessageHandlerService.
func (s *producers) SendHalfMessages(
	ctx context.Context, r *msghandlerv1.SendHalfMessagesRequest,
) (*msghandlerv1.SendHalfMessagesResponse, error) {
	const call = "SendHalfMessages"
	c := &check{}
	o, err := s.origin(ctx, c, r.GetProducer(), r.GetCallbackTarget(), r.GetConfirmAfter())
	if err != nil {
		return nil, s.refuse(r.GetProducer(), err)
	}
	c.count("messages", len(r.GetMessages()))
	if err := c.err(); err != nil {
		return nil, s.refuse(r.GetProducer(), err)
	}
	results, err := s.createAll(ctx, o, r.GetMessages())
	if err = errors.Join(err, halted(results)); err != nil {
		return nil, s.fail(call, err, halfmsg.None)
	}
	return &msghandlerv1.SendHalfMessagesResponse{Outcomes: s.outcomes(call, results)}, nil
}

// createAll judges each message alone and stores the good ones. Of an id that stands in the batch more than once the
// first is stored before the others are looked at, so the answers are those of calls one after the other.
func (s *Server) createAll(ctx context.Context, o origin, messages []*msghandlerv1.Message) ([]halfmsg.Result, error) {
	results := make([]halfmsg.Result, len(messages))
	good := make([]halfmsg.Message, len(messages))
	var places []int
	for i, m := range messages {
		c := &check{path: item("messages", i)}
		if good[i] = s.build(c, o, m); c.found != nil {
			results[i].Err = c.err()
			s.tellRefused(o.producer, results[i].Err)
			continue
		}
		places = append(places, i)
	}
	done, err := s.heavy(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	for _, now := range turns(places, func(i int) halfmsg.Name { return good[i].Name }) {
		part := make([]halfmsg.Message, len(now))
		for k, i := range now {
			part[k] = good[i]
		}
		created := s.inDetachedWrite(ctx, len(part), func(ctx context.Context) []halfmsg.Result { return s.create(ctx, part) })
		scatter(results, now, created)
	}
	return results, nil
}

// Rollback implements MessageHandlerService.
func (s *producers) Rollback(
	ctx context.Context, r *msghandlerv1.RollbackRequest,
) (*msghandlerv1.RollbackResponse, error) {
	const call = "Rollback"
	name := halfmsg.Name{Producer: r.GetProducer(), ID: r.GetId()}
	c := &check{}
	c.name(name)
	if err := c.err(); err != nil {
		return nil, s.fail(call, err, halfmsg.None)
	}
	result, err := gathered(ctx, s.rollbacks, name)
	if err = errors.Join(err, result.Err); err != nil {
		return nil, s.fail(call, err, result.State)
	}
	if r.GetReason() != "" {
		s.config.Logger.InfoContext(ctx, "rolled back by its producer",
			"message", name.String(), "reason", cut(r.GetReason()))
	}
	return &msghandlerv1.RollbackResponse{State: msghandlerv1.State(result.State)}, nil
}
