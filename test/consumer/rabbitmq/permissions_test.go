package rabbitmq_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
	"github.com/msghandler/msghandler/test/consumer/logs"
	"github.com/msghandler/msghandler/test/consumer/permissions"
)

func TestConsumerNeedsPermissionsOfPage(t *testing.T) {
	t.Parallel()
	b, log, depths := newBench(t), &logs.Lines{}, &consumertest.Depths{}
	of := func(row string) string { return permissions.Of(t, "RabbitMQ: "+row)[0] }
	config := b.delayed(10 * time.Millisecond)
	config.URL, config.Logger = b.user(of("configure"), of("write"), of("read")), log.Logger()
	config.Observer, config.DepthInterval = depths, 20*time.Millisecond
	handled := make(chan string, 10)
	stop := b.start(config, func(_ context.Context, m *consumer.Message) error {
		switch {
		case m.ID == "1":
			return consumer.Reject(errors.New("no JSON"))
		case m.Retries == 0:
			return errors.New("no database")
		}
		handled <- m.ID
		return nil
	})
	b.publish(1, 2)
	if id := take(t, handled, "the message that failed once"); id != "2" {
		t.Errorf("handled %s", id)
	}
	depths.AwaitWaiting(t, "payments", 0)
	depths.AwaitDead(t, "payments", 1)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), "ACCESS_REFUSED") {
		t.Errorf("the user lacks a permission: %s", log)
	}
}
