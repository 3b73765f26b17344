package outbox

import (
	"fmt"

	"github.com/msghandler/msghandler/producer"
)

// ForCoordinator is the error of a message that names a broker, when a relay has no coordinator: only coordinators know
// brokers by name.
func ForCoordinator(m *producer.Message) error {
	if m.Broker == "" {
		return nil
	}
	return fmt.Errorf("it names the broker %q, which only a coordinator knows: relay it to the coordinator, or leave "+
		"Broker empty", m.Broker)
}
