package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// The least that a half message costs in Redis: one value and one place in an index, moved and removed, without any
// check, lease or trace.
var (
	bareHalf = redis.NewScript(`
		for i = 3, #KEYS do
			redis.call('SET', KEYS[i], ARGV[i - 2])
			redis.call('ZADD', KEYS[1], i, KEYS[i])
		end`)
	bareSendable = redis.NewScript(`
		for i = 3, #KEYS do
			redis.call('ZADD', KEYS[2], i, KEYS[i])
			redis.call('ZREM', KEYS[1], KEYS[i])
		end`)
	bareDone = redis.NewScript(`
		for i = 3, #KEYS do
			redis.call('ZREM', KEYS[2], KEYS[i])
			redis.call('DEL', KEYS[i])
		end`)
)

// redisAlone runs message cycles of bare scripts, in batches, from eight callers.
func (s *setup) redisAlone() (time.Duration, []time.Duration) {
	ctx := context.Background()
	took, _ := s.inParallel(8, *batch, func(count int) {
		keys := []string{"bare:pending", "bare:sendable"}
		var bodies []any
		for range count {
			keys = append(keys, fmt.Sprintf("bare:m:%d", s.ids.Add(1)))
			bodies = append(bodies, s.body)
		}
		s.bare(bareHalf.Run(ctx, s.client, keys, bodies...))
		s.bare(bareSendable.Run(ctx, s.client, keys))
		s.bare(bareDone.Run(ctx, s.client, keys))
	})
	return took, nil
}

func (s *setup) bare(result *redis.Cmd) {
	if err := result.Err(); err != nil && !errors.Is(err, redis.Nil) {
		s.b.Error(err)
	}
}

// publishesAlone publishes persistent, mandatory messages with confirms, a thousand in flight.
func (s *setup) publishesAlone() (time.Duration, []time.Duration) {
	conn, err := amqp.Dial(s.rabbit.URL)
	s.must(err)
	defer conn.Close()
	channel, err := conn.Channel()
	s.must(err)
	s.must(channel.Confirm(false))
	ctx := context.Background()
	begun := time.Now()
	window := make(chan *amqp.DeferredConfirmation, 1000)
	go func() {
		defer close(window)
		for range *messages {
			confirmation, err := channel.PublishWithDeferredConfirmWithContext(ctx, "", queueName, true, false, amqp.Publishing{
				DeliveryMode: amqp.Persistent, Body: s.body,
			})
			if err != nil {
				s.b.Error(err)
				return
			}
			window <- confirmation
		}
	}()
	for confirmation := range window {
		if !confirmation.Wait() {
			s.b.Error("nacked")
		}
	}
	took := time.Since(begun)
	s.emptyQueue()
	return took, nil
}

// unary is one message a call: SendHalfMessage, then Submit, which returns when the broker has acknowledged.
func (s *setup) unary() (time.Duration, []time.Duration) {
	ctx := context.Background()
	took, latencies := s.inParallel(*callers, 1, func(int) {
		m := s.message()
		_, err := s.api.SendHalfMessage(ctx, &pb.SendHalfMessageRequest{
			Producer: producer, CallbackTarget: s.callbacks, Message: m,
		})
		if err != nil {
			s.b.Error(err)
			return
		}
		answer, err := s.api.Submit(ctx, &pb.SubmitRequest{Producer: producer, Id: m.GetId(), Wait: pb.Wait_WAIT_DONE})
		if err != nil || answer.GetState() != pb.State_STATE_DONE {
			s.b.Errorf("submit: %v, %v", answer.GetState(), err)
		}
	})
	s.emptyQueue()
	return took, latencies
}

// batches is many messages a call, as the producer SDK gathers them.
func (s *setup) batches() (time.Duration, []time.Duration) {
	ctx := context.Background()
	took, latencies := s.inParallel(8, *batch, func(count int) {
		half := &pb.SendHalfMessagesRequest{Producer: producer, CallbackTarget: s.callbacks}
		submit := &pb.SubmitAllRequest{Producer: producer, Wait: pb.Wait_WAIT_DONE}
		for range count {
			m := s.message()
			half.Messages = append(half.Messages, m)
			submit.Ids = append(submit.Ids, m.GetId())
		}
		stored, err := s.api.SendHalfMessages(ctx, half)
		s.allIn(stored.GetOutcomes(), err, pb.State_STATE_PENDING)
		submitted, err := s.api.SubmitAll(ctx, submit)
		s.allIn(submitted.GetOutcomes(), err, pb.State_STATE_DONE)
	})
	s.emptyQueue()
	return took, latencies
}

func (s *setup) allIn(outcomes []*pb.Outcome, err error, state pb.State) {
	if err != nil {
		s.b.Error(err)
	}
	for _, o := range outcomes {
		if o.GetCode() != 0 || o.GetState() != state {
			s.b.Errorf("outcome %v, want %v", o, state)
			return
		}
	}
}
