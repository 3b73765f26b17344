package servers

import "testing"

// Between the choice of a port and the start of its server no process listens there, and the port must not be chosen
// again.
func TestPortsAreHandedOutOnce(t *testing.T) {
	t.Parallel()
	ports, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	if takePort(ports[0]) {
		t.Errorf("port %d was given out twice", ports[0])
	}
}
