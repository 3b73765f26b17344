// Package network is how a process reaches others and is reached: over the machine's network, or over another one, such
// as that of the simulation.
package network

import (
	"context"
	"net"
)

// Dialer connects to an address. The nil Dialer connects over the machine's network.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// Dial connects within the context.
func (d Dialer) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if d == nil {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	return d(ctx, network, addr)
}

// Network is what a process has of a network. The zero Network is the machine's.
type Network struct {
	// Dial connects to others.
	Dial Dialer
	// Listen waits for others. Nil: at the machine's network.
	Listen func(ctx context.Context, network, addr string) (net.Listener, error)
}
