package connlimit

import (
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall does not name.
const tcpUserTimeout = 0x12

// UserTimeout is a net.ListenConfig's Control: connections of the listener end when sent data stays unacknowledged for
// so long. gRPC sets the option itself on a *net.TCPConn only.
func UserTimeout(after time.Duration) func(network, address string, raw syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) error {
		var failed error
		if err := raw.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(after.Milliseconds()))
		}); err != nil {
			return err
		}
		return failed
	}
}
