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
	if err == nil || !strings.Contains(err.Error(), `"events"`) || !strings.Contains(err.Error(), "relay it to the coordinator") {
		t.Errorf("got %v", err)
	}
}
