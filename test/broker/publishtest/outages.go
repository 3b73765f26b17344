package publishtest

import (
	"testing"

	"github.com/msghandler/msghandler/test/wire"
)

// Outages are the Faults of a server behind a network that breaks. A fixture embeds it, and adds Block.
type Outages struct {
	Server interface {
		Kill()
		Start()
	}
	Network *wire.Proxy
}

// Hang implements Faults.
func (o Outages) Hang(*testing.T) (resume func()) {
	o.Network.Hold()
	return o.Network.Restore
}

// Cut implements Faults.
func (o Outages) Cut(*testing.T) (restore func()) {
	o.Network.Cut()
	return o.Network.Restore
}

// Kill drops what the network still holds back, so that nothing of a killed server arrives.
func (o Outages) Kill(*testing.T) {
	o.Server.Kill()
	o.Network.Disconnect()
}

// Restart implements Faults.
func (o Outages) Restart(*testing.T) {
	o.Server.Start()
	o.Network.Restore()
}
