package servers

import "testing"

// Addresses returns n different loopback addresses without a listener, for programs that a test starts.
func Addresses(t testing.TB, n int) []string {
	t.Helper()
	ports, err := freePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	addresses := make([]string, n)
	for i, port := range ports {
		addresses[i] = loopback(port)
	}
	return addresses
}
