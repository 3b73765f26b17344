package nats_test

import (
	"context"
	"errors"
	"testing"

	"github.com/msghandler/msghandler/consumer"
)

// The database of the handler is away for longer than all deliveries take. No message is at fault.
func TestTransientTroubleBuriesNoMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("1", "2")
	var handled calls
	w.run(w.config(), func(_ context.Context, m *consumer.Message) error {
		handled.add(m.ID)
		if m.Deliveries > 0 {
			t.Errorf("%s was delivered again", m.ID)
		}
		if m.ID == "1" && handled.count("1") < 10 {
			return consumer.Transient(errors.New("the database is away"))
		}
		return nil
	})
	w.settled()
	handled.want(t, []string{"1"}, 10)
	w.wantDead()
}
