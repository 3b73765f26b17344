package publishtest

import (
	"crypto/tls"
	"sync"
	"testing"
)

// Handshakes are what a publisher reports about TLS, by server. The zero value has none.
type Handshakes struct {
	mu       sync.Mutex
	verified map[string]bool
}

// Note is for publish.Config.Handshake.
func (h *Handshakes) Note(server string, state tls.ConnectionState, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.verified == nil {
		h.verified = map[string]bool{}
	}
	h.verified[server] = err == nil && len(state.VerifiedChains) > 0
}

// Expect demands a verified handshake with a server; of an empty name, with any server.
func (h *Handshakes) Expect(t testing.TB, server string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, verified := range h.verified {
		if verified && (server == "" || server == name) {
			return
		}
	}
	t.Errorf("no verified handshake with %q: %v", server, h.verified)
}
