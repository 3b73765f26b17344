// Package delivery is what both loops do with the messages they have claimed: mind the leases, keep within a room, store
// what was found out with some patience, and set aside the one record that brings a batch down.
package delivery

import (
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Held is a claim in the hands of this instance.
type Held struct {
	halfmsg.Claim
	// Until is when the lease ends as this instance reckons: counted on its own monotonic clock from before the store
	// was asked, so never later than the store means. It decides only what is not worth beginning any more; whether a
	// lease holds is the store's word.
	Until time.Time
}

// Hold makes Helds of claims whose leases end at until.
func Hold(claims []halfmsg.Claim, until time.Time) []Held {
	held := make([]Held, len(claims))
	for i, claim := range claims {
		held[i] = Held{Claim: claim, Until: until}
	}
	return held
}

// HoldBacklog makes Helds of claims that a pass has made.
func HoldBacklog(claims []halfmsg.Claim, until time.Time) []Held {
	for i := range claims {
		claims[i].Backlog = true
	}
	return Hold(claims, until)
}

// Claims gives the claims back.
func Claims(held []Held) []halfmsg.Claim {
	claims := make([]halfmsg.Claim, len(held))
	for i, h := range held {
		claims[i] = h.Claim
	}
	return claims
}

// Lasting splits held into those whose lease still lasts longer than margin, and those with which nothing should be
// begun.
func Lasting(held []Held, margin time.Duration) (lasting, ending []Held) {
	latest := time.Now().Add(margin)
	for i, h := range held {
		if h.Until.After(latest) {
			continue
		}
		// Seldom: only now is a second list needed.
		lasting = append(lasting, held[:i]...)
		for _, h := range held[i:] {
			if h.Until.After(latest) {
				lasting = append(lasting, h)
			} else {
				ending = append(ending, h)
			}
		}
		return lasting, ending
	}
	return held, nil
}

// Room bounds what waits in memory, by number and by size of the bodies. It is not safe for concurrent use.
type Room struct {
	// Claims and Bytes are the bounds.
	Claims int
	Bytes  int

	claims, bytes int
	// typical is the size of a body, as the latest ones were.
	typical int
}

// unseen is what a body is taken to weigh before one was seen.
const unseen = 16 << 10

// Free is how many claims may still come in, if their bodies are as large as those before.
func (r *Room) Free() int {
	typical := r.typical
	if typical == 0 {
		typical = unseen
	}
	if r.bytes >= r.Bytes {
		return 0
	}
	return max(0, min(r.Claims-r.claims, 1+(r.Bytes-r.bytes)/typical))
}

// FreeHalf is how many may come in before the room is half full: what is not urgent leaves the other half to what is.
func (r *Room) FreeHalf() int {
	half := *r
	half.Claims, half.Bytes = (r.Claims+1)/2, (r.Bytes+1)/2
	return half.Free()
}

// Waiting is how many claims are inside.
func (r *Room) Waiting() int { return r.claims }

// Enter lets claims in, bound or no bound: whoever minds the bound asks Free first.
func (r *Room) Enter(held ...Held) {
	if len(held) == 0 {
		return
	}
	bytes := 0
	for _, h := range held {
		bytes += len(h.Body)
	}
	r.claims += len(held)
	r.bytes += bytes
	r.typical = (r.typical + bytes/len(held) + 1) / 2
	r.typical = max(r.typical, 1)
}

// Leave lets claims out.
func (r *Room) Leave(held ...Held) {
	r.claims -= len(held)
	for _, h := range held {
		r.bytes -= len(h.Body)
	}
}
