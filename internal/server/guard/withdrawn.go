package guard

import (
	"context"
	"time"

	"google.golang.org/grpc/credentials"
)

// CloseWithdrawn closes, at every interval, the connections whose client certificate does not hold any more, until the
// context ends. withdrawn says why one does not, or nil.
func (g *Guard) CloseWithdrawn(
	ctx context.Context, interval time.Duration, withdrawn func(credentials.AuthInfo) error,
) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			g.closeWithdrawn(withdrawn)
		}
	}
}

// closeWithdrawn checks all open connections. A check takes the time of a signature, so no lock is held.
func (g *Guard) closeWithdrawn(withdrawn func(credentials.AuthInfo) error) {
	for _, c := range g.connections() {
		why := withdrawn(c.info)
		if why == nil {
			continue
		}
		g.config.Logger.Warn("a connection was closed: its client certificate does not hold any more; the client needs "+
			"another certificate", "from", c.RemoteAddr().String(), "cause", why)
		_ = c.Conn.Close() // gRPC finds the connection closed, and then calls connection.Close
	}
}

func (g *Guard) connections() (all []*connection) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.open {
		all = append(all, c)
	}
	return all
}
