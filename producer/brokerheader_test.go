package producer

import "testing"

// TestBrokerIsRepeatedInAHeader: coordinators that know no brokers ignore the field, and refuse the header.
func TestBrokerIsRepeatedInAHeader(t *testing.T) {
	t.Parallel()
	own := map[string]string{"own": "1"}
	for _, m := range []Message{{ID: "1", Broker: "events"}, {ID: "1", Broker: "events", Headers: own}} {
		wire, err := m.onWire()
		if err != nil || wire.GetBroker() != "events" || wire.GetHeaders()["msghandler-broker"] != "events" ||
			len(wire.GetHeaders()) != len(m.Headers)+1 {
			t.Errorf("on the wire: %v, %v", wire, err)
		}
	}
	plain := Message{ID: "1", Headers: own}
	if wire, err := plain.onWire(); err != nil || len(wire.GetHeaders()) != 1 || len(own) != 1 {
		t.Errorf("without a broker: %v, %v; the caller's headers are %v", wire, err, own)
	}
	bad := Message{ID: "1", Broker: "\xff"}
	if _, err := bad.onWire(); err == nil {
		t.Error("a broker that is not UTF-8 was accepted")
	}
}
