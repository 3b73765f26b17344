package outbox_test

import (
	"strings"
	"testing"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/outbox"
)

func TestNamedBrokerNeedsACoordinator(t *testing.T) {
	t.Parallel()
	if err := outbox.ForCoordinator(&producer.Message{ID: "1"}); err != nil {
		t.Error(err)
	}
	err := outbox.ForCoordinator(&producer.Message{ID: "1", Broker: "events"})
	if err == nil || !strings.Contains(err.Error(), `"events", which only a coordinator knows: relay it`) {
		t.Errorf("got %v", err)
	}
}
