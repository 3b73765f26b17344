package login

import (
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// The limits of attempts. A token has 256 random bits, so the limit does not keep anyone from guessing it: it bounds
// what wrong guesses write to the log.
const (
	maxGuesses     = 10
	attemptsWindow = time.Minute
	// maxReturns bounds the calls to the issuer with wrong codes. Anyone can return with a wrong code, and everyone behind
	// the address would have to wait: so the limit is far above what people do.
	maxReturns = 600
	// maxAddresses bounds the memory. Further addresses share one count.
	maxAddresses = 10_000
)

// attempts counts failed attempts to log in by address.
type attempts struct {
	// most is how many attempts of an address may fail in attemptsWindow.
	most int

	mu   sync.Mutex
	from map[netip.Addr]*count
}

type count struct {
	failed int
	began  time.Time
}

// begin counts an attempt, and returns false if the address has made too many.
func (a *attempts) begin(from netip.Addr, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.of(from, now)
	if c.failed >= a.most {
		return false
	}
	c.failed++
	return true
}

// takeBack takes back an attempt that was no wrong guess.
func (a *attempts) takeBack(from netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.from[from]; c != nil && c.failed > 0 {
		c.failed--
	}
}

// of is the current count of an address.
func (a *attempts) of(from netip.Addr, now time.Time) *count {
	if len(a.from) >= maxAddresses && a.from[from] == nil {
		for other, c := range a.from {
			if now.Sub(c.began) >= attemptsWindow {
				delete(a.from, other)
			}
		}
		if len(a.from) >= maxAddresses {
			from = netip.Addr{}
		}
	}
	c := a.from[from]
	if c == nil || now.Sub(c.began) >= attemptsWindow {
		if a.from == nil {
			a.from = map[netip.Addr]*count{}
		}
		c = &count{began: now}
		a.from[from] = c
	}
	return c
}

// addressOf is the address of a connection; of IPv6 its network of 64 bits, which one client may have whole.
func addressOf(r *http.Request) netip.Addr {
	addr := peerOf(r)
	if addr.Is6() {
		network, _ := addr.Prefix(64) // never fails for IPv6
		return network.Addr()
	}
	return addr
}

// peerOf is the address of the other end of a connection; the zero value where it has none.
func peerOf(r *http.Request) netip.Addr {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	return peer.Addr().Unmap().WithZone("")
}
