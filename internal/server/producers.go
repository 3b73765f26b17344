package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server/policy"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// producers is MessageHandlerService.
type producers struct {
	msghandlerv1.UnimplementedMessageHandlerServiceServer
	server *Server
}

// origin is what the messages of one request have in common: their producer, its callback target and the first Confirm.
type origin struct {
	producer     string
	target       string
	markerStore  string
	confirmAfter time.Duration
	trace        string
	policy       *policy.Producer
}

// halfMessages is the part of SendHalfMessageRequest and SendHalfMessagesRequest that all messages have in common.
type halfMessages interface {
	GetProducer() string
	GetCallbackTarget() string
	GetMarkerStore() string
	GetConfirmAfter() *durationpb.Duration
}

// origin checks the part of a request that its messages have in common.
func (s *Server) origin(ctx context.Context, c *check, r halfMessages) (origin, error) {
	producer, target, confirmAfter := r.GetProducer(), r.GetCallbackTarget(), r.GetConfirmAfter()
	o := origin{
		producer: producer, markerStore: r.GetMarkerStore(), confirmAfter: s.config.ConfirmAfter, trace: traceOf(ctx),
	}
	c.markerStore("marker_store", o.markerStore)
	if c.producer("producer", producer); c.found == nil {
		o.policy = s.config.Policies.Of(producer)
	}
	if confirmAfter != nil {
		o.confirmAfter = c.duration("confirm_after", confirmAfter, maxConfirmAfter)
	}
	resolved, err := s.config.Targets.Resolve(producer, target)
	switch {
	case errors.Is(err, halfmsg.ErrForbidden) && c.found == nil:
		return o, err
	case errors.Is(err, halfmsg.ErrNoTarget) || err == nil && strings.HasPrefix(resolved, halfmsg.AttendScheme):
		switch attended, away := s.attended(ctx, c, producer); {
		case away != nil:
			return o, away
		case s.config.Attendance == nil || c.found != nil:
			c.fail("callback_target", "is not usable: %s", notAttended(err, producer))
		case !attended:
			return o, notAttended(err, producer)
		}
		o.target = halfmsg.AttendTarget(producer)
	case err != nil:
		c.fail("callback_target", "is not usable: %s", err)
	case target != "":
		// Without a named target no target is stored: Confirm then uses the target that is configured at the time.
		o.target = resolved
		return o, o.policy.CheckTarget(resolved)
	}
	return o, nil
}

// errNotAttended refuses the messages of a producer that cannot be asked now. The producer may attend a moment later:
// its stream is being opened, or Redis is new and the next announcement is seconds away.
var errNotAttended = errors.New("no one attends")

// notAttended says why a producer without a target cannot be called.
func notAttended(err error, producer string) error {
	if err == nil {
		return fmt.Errorf("%w as producer %s", errNotAttended, producer)
	}
	return fmt.Errorf("%w, and %w as producer %s", err, errNotAttended, producer)
}

// attended reports whether a producer attends, or has attended lately. A name that is invalid is not looked for.
func (s *Server) attended(ctx context.Context, c *check, producer string) (bool, error) {
	if s.config.Attendance == nil || c.found != nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return s.config.Attendance.Attended(ctx, producer)
}

// originFailed answers a request whose origin is refused, or cannot be checked now.
func (s *Server) originFailed(ctx context.Context, call, producer string, err error) error {
	if errors.Is(err, halfmsg.ErrForbidden) || errors.Is(err, policy.ErrForbidden) || errors.Is(err, errNotAttended) {
		return s.refuse(ctx, producer, err)
	}
	return s.fail(ctx, call, err, halfmsg.None)
}

// build checks a message and returns the domain's message.
func (s *Server) build(c *check, o origin, m *msghandlerv1.Message) halfmsg.Message {
	if m == nil {
		c.fail("", "must be set")
		return halfmsg.Message{}
	}
	c.path += "."
	c.message(m, s.config.Limits.Body, s.config.Brokers)
	c.ownBody(o, len(m.GetBody()))
	return halfmsg.Message{
		Name:     halfmsg.Name{Producer: o.producer, ID: m.GetId()},
		Broker:   m.GetBroker(),
		Exchange: m.GetExchange(), RoutingKey: m.GetRoutingKey(),
		ContentType: m.GetContentType(), Headers: m.GetHeaders(), Body: m.GetBody(),
		Delay:          c.duration("delay", m.GetDelay(), maxDelay),
		OrderingKey:    m.GetOrderingKey(),
		EarlierCopies:  int(m.GetEarlierCopies()),
		CallbackTarget: o.target, MarkerStore: o.markerStore, ConfirmAfter: o.confirmAfter, Trace: o.trace,
	}
}

// SendHalfMessage implements MessageHandlerService.
func (p *producers) SendHalfMessage(
	ctx context.Context, r *msghandlerv1.SendHalfMessageRequest,
) (*msghandlerv1.SendHalfMessageResponse, error) {
	const call = "SendHalfMessage"
	c := &check{}
	o, err := p.server.origin(ctx, c, r)
	if err != nil && !errors.Is(err, errNotAttended) {
		return nil, p.server.originFailed(ctx, call, r.GetProducer(), err)
	}
	c.path = "message"
	message := p.server.build(c, o, r.GetMessage())
	// A wrong field comes first: the call is not to be repeated until a producer attends.
	if err := cmp.Or(c.err(), err, o.mayName(c, &message)); err != nil {
		return nil, p.server.refuse(ctx, r.GetProducer(), err)
	}
	result, err := p.server.create(ctx, o.policy, message)
	if err = errors.Join(err, result.Err); err != nil {
		return nil, p.server.fail(ctx, call, err, result.State)
	}
	return &msghandlerv1.SendHalfMessageResponse{State: msghandlerv1.State(result.State)}, nil
}

// SendHalfMessages implements MessageHandlerService.
func (p *producers) SendHalfMessages(
	ctx context.Context, r *msghandlerv1.SendHalfMessagesRequest,
) (*msghandlerv1.SendHalfMessagesResponse, error) {
	const call = "SendHalfMessages"
	c := &check{}
	o, err := p.server.origin(ctx, c, r)
	if err != nil {
		return nil, p.server.originFailed(ctx, call, r.GetProducer(), err)
	}
	c.count("messages", len(r.GetMessages()))
	if err := c.err(); err != nil {
		return nil, p.server.refuse(ctx, r.GetProducer(), err)
	}
	results, err := p.createAll(ctx, o, r.GetMessages())
	if err = errors.Join(err, halted(results)); err != nil {
		return nil, p.server.fail(ctx, call, err, halfmsg.None)
	}
	return &msghandlerv1.SendHalfMessagesResponse{Outcomes: p.server.outcomes(ctx, call, results)}, nil
}

// Rollback implements MessageHandlerService.
func (p *producers) Rollback(
	ctx context.Context, r *msghandlerv1.RollbackRequest,
) (*msghandlerv1.RollbackResponse, error) {
	const call = "Rollback"
	name := halfmsg.Name{Producer: r.GetProducer(), ID: r.GetId()}
	c := &check{}
	c.name(name)
	if err := c.err(); err != nil {
		return nil, p.server.fail(ctx, call, err, halfmsg.None)
	}
	result, err := p.server.submits.Rollback(ctx, name)
	if err = errors.Join(err, result.Err); err != nil {
		return nil, p.server.fail(ctx, call, err, result.State)
	}
	if r.GetReason() != "" {
		p.server.config.Logger.InfoContext(ctx, "rolled back by its producer",
			"message_id", name.String(), "reason", cut(r.GetReason()))
	}
	return &msghandlerv1.RollbackResponse{State: msghandlerv1.State(result.State)}, nil
}
