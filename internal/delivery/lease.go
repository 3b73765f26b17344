// Package delivery is what both loops share: leases of claimed messages, a bound on what waits in memory, the storing
// of outcomes, and the isolation of a poison message in a batch.
package delivery

import (
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Leased is a claimed message with the end of its lease.
type Leased struct {
	halfmsg.Claim
	// Until is the end of the lease on this coordinator's monotonic clock, counted from before the store was called. So
	// Until is never later than the end that the store knows. Until only decides what is not worth beginning any more;
	// whether a lease holds is decided by the store.
	Until time.Time
}

// WithLease adds the end of their lease to claims.
func WithLease(claims []halfmsg.Claim, until time.Time) []Leased {
	leased := make([]Leased, len(claims))
	for i, claim := range claims {
		leased[i] = Leased{Claim: claim, Until: until}
	}
	return leased
}

// BacklogWithLease is WithLease for claims of a pass, which are backlog.
func BacklogWithLease(claims []halfmsg.Claim, until time.Time) []Leased {
	for i := range claims {
		claims[i].Backlog = true
	}
	return WithLease(claims, until)
}

// Claims returns the claims without the ends of their leases.
func Claims(leased []Leased) []halfmsg.Claim {
	claims := make([]halfmsg.Claim, len(leased))
	for i, l := range leased {
		claims[i] = l.Claim
	}
	return claims
}

// Lasting splits messages into those whose lease lasts longer than margin, and the rest, with which nothing should
// begin.
func Lasting(leased []Leased, margin time.Duration) (lasting, ending []Leased) {
	latest := time.Now().Add(margin)
	for i, l := range leased {
		if l.Until.After(latest) {
			continue
		}
		// Leases seldom end here: only now is a second list needed.
		lasting = append(lasting, leased[:i]...)
		for _, l := range leased[i:] {
			if l.Until.After(latest) {
				lasting = append(lasting, l)
			} else {
				ending = append(ending, l)
			}
		}
		return lasting, ending
	}
	return leased, nil
}
