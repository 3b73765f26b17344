package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

// silent makes n messages without a Submit.
func silent(n int) []*pb.Message {
	messages := make([]*pb.Message, n)
	for i := range messages {
		messages[i] = &pb.Message{Id: fmt.Sprintf("s-%d", i), RoutingKey: "events", Body: []byte("{}")}
	}
	return messages
}

func TestHungProducerDelaysNoOther(t *testing.T) {
	w := newWorld(t)
	// The loop looks four times a second here, so that the promised second is not the interval of the loop.
	w.startCoordinators(1, "MSGHANDLER_CONFIRM_SCHEDULE=@every 250ms")
	if _, err := w.channel().QueueDeclare("events", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	hanging := newPlainProducer(t, "hanging", w.coordinators[0].grpc, func(p *plainProducer) {
		p.confirm = func(ctx context.Context, _ []string) (*pb.ConfirmResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	waiting := silent(5000)
	for len(waiting) > 0 {
		hanging.sendHalves(time.Millisecond, waiting[:1000]...)
		waiting = waiting[1000:]
	}
	servers.Eventually(t, 20*time.Second, "the hanging producer is asked", func() bool {
		return hanging.askedAbout() > 0
	})

	healthy := newPlainProducer(t, "healthy", w.coordinators[0].grpc)
	const after = 500 * time.Millisecond
	messages := silent(200)
	healthy.sendHalves(after, messages...)
	due := time.Now().Add(after)
	servers.Eventually(t, 20*time.Second, "the healthy producer is asked about all", func() bool {
		for _, m := range messages {
			if healthy.askedAt(m.GetId()).IsZero() {
				return false
			}
		}
		return true
	})
	var latest time.Duration
	for _, m := range messages {
		latest = max(latest, healthy.askedAt(m.GetId()).Sub(due))
	}
	t.Logf("the last of the healthy producer's messages was asked about %v after it was due", latest)
	if hanging.askedAbout() == 5000 {
		t.Error("the hanging producer was asked about all messages first: producers do not wait side by side")
	}
}
