package producer

import "testing"

// A relay counts its claims while the coordinator is away, however long.
func TestManyEarlierCopiesAreTaken(t *testing.T) {
	t.Parallel()
	m := Message{ID: "1", RoutingKey: "paid", EarlierCopies: 5_000_000_000}
	wire, err := m.onWire()
	if err != nil || wire.GetEarlierCopies() != 1_000_000 {
		t.Errorf("%d copies: %v", wire.GetEarlierCopies(), err)
	}
}

func TestOrderingKeyIsSent(t *testing.T) {
	t.Parallel()
	m := Message{ID: "1", RoutingKey: "paid", OrderingKey: "customer-7"}
	wire, err := m.onWire()
	if err != nil || wire.GetOrderingKey() != "customer-7" {
		t.Errorf("ordering key %q: %v", wire.GetOrderingKey(), err)
	}
}
