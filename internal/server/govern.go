package server

import (
	"cmp"
	"context"
	"errors"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server/policy"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// The policy of its producer is applied to each half message: first what the message names, then how much the producer
// holds. Submit, Rollback, Attend and a retry are not governed: a stored message must be able to end.

// ownBody checks the size of a body against the limit of the producer.
func (c *check) ownBody(o origin, size int) {
	if most := o.policy.MaxBody(); most > 0 && size > most {
		c.fail("body", "is %d bytes long, more than the %d of producers.%s.max_body", size, most, o.producer)
	}
}

// mayName says why the producer may not send a valid message.
func (o origin) mayName(c *check, m *halfmsg.Message) error {
	err := o.policy.CheckMessage(policy.Message{Broker: m.Broker, Exchange: m.Exchange, RoutingKey: m.RoutingKey})
	var forbidden *policy.ForbiddenError
	if errors.As(err, &forbidden) {
		forbidden.Field = c.path + forbidden.Field
	}
	return err
}

// mayPublish says why a message of the archive may not be published again: its producer's policy has changed since.
func (s *Server) mayPublish(m *halfmsg.Message) error {
	to := policy.Message{Broker: m.Broker, Exchange: m.Exchange, RoutingKey: m.RoutingKey}
	return s.config.Policies.Of(m.Producer).CheckMessage(to)
}

// What may not be stored may be stored already: the answer to an earlier call was lost. Then the message gets its
// state, over any limit, and also while the store is full.

// create stores a message if its producer may hold one more.
func (s *Server) create(ctx context.Context, of *policy.Producer, m halfmsg.Message) (halfmsg.Result, error) {
	if refused := of.Take(weightOf(&m)); refused != nil {
		return s.submits.Recall(ctx, m, refused)
	}
	result, err := s.submits.Create(ctx, m)
	of.Done(weightOf(&m), cmp.Or(err, result.Err) == nil)
	if errors.Is(result.Err, halfmsg.ErrFull) {
		return s.submits.Recall(ctx, m, result.Err)
	}
	return result, err
}

// createAll judges each message alone and stores the valid messages, as many as the producer may hold.
func (p *producers) createAll(
	ctx context.Context, o origin, messages []*msghandlerv1.Message,
) ([]halfmsg.Result, error) {
	results := make([]halfmsg.Result, len(messages))
	valid := make([]halfmsg.Message, len(messages))
	var places, refused []int
	for i, m := range messages {
		c := &check{path: item("messages", i)}
		valid[i] = p.server.build(c, o, m)
		if results[i].Err = cmp.Or(c.err(), o.mayName(c, &valid[i])); results[i].Err != nil {
			p.server.reportRefusal(ctx, o.producer, results[i].Err)
			continue
		}
		if results[i].Err = o.policy.Take(weightOf(&valid[i])); results[i].Err == nil {
			places = append(places, i)
		} else {
			refused = append(refused, i)
		}
	}
	err := p.server.submits.CreateAll(ctx, valid, places, results)
	for _, i := range places {
		o.policy.Done(weightOf(&valid[i]), cmp.Or(err, results[i].Err) == nil)
		if errors.Is(results[i].Err, halfmsg.ErrFull) {
			refused = append(refused, i)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := p.server.submits.RecallAll(ctx, valid, refused, results); err != nil {
		return nil, err
	}
	return results, nil
}

// weightOf is about how many bytes a message has in the store.
func weightOf(m *halfmsg.Message) int {
	size := len(m.Exchange) + len(m.RoutingKey) + len(m.Body)
	for key, value := range m.Headers {
		size += len(key) + len(value)
	}
	return size
}
