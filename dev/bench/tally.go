package bench

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fate is the planned end of a message.
type fate uint8

const (
	committed fate = iota
	// silent: committed without a Submit.
	silent
	rolledBack
)

// tally records what became of every message of a run, by number. All methods are safe for concurrent use.
type tally struct {
	prefix string

	mu sync.Mutex
	// These are by number: the planned end of a message, the number of deliveries, and the time of the Submit, zero for a
	// message without a timed delivery.
	fates     []fate
	copies    []uint8
	submitted []time.Time

	done, failed, delivered, further, alien, ghosts, missing int64
}

// plan adds a message whose fate follows from the shares, and returns number and fate. Fates are spread evenly, so that
// the shares hold for short runs as well.
func (t *tally) plan(silentShare, rollbackShare float64) (int, fate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// The fractions of multiples of the golden ratio fill an interval evenly.
	_, at := math.Modf(float64(len(t.fates)) * math.Phi)
	f := committed
	switch {
	case at < silentShare:
		f = silent
	case at < silentShare+rollbackShare:
		f = rolledBack
	}
	return t.add(f), f
}

// begin adds a message with a fate and returns its number.
func (t *tally) begin(f fate) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.add(f)
}

func (t *tally) add(f fate) int {
	t.fates = append(t.fates, f)
	t.copies = append(t.copies, 0)
	t.submitted = append(t.submitted, time.Time{})
	if f != rolledBack {
		t.missing++
	}
	return len(t.fates) - 1
}

// id is the id of a number.
func (t *tally) id(number int) string { return t.prefix + strconv.Itoa(number) }

// refused records that a message was not stored as far as its producer knows: the transaction did not run.
func (t *tally) refused(number int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fates[number] != rolledBack {
		t.missing--
	}
	t.fates[number] = rolledBack
}

// submit records the time of a message's Submit; its delivery is then timed.
func (t *tally) submit(number int, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.submitted[number] = at
}

// end records that a caller has finished a message, with or without an answer.
func (t *tally) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.failed++
		return
	}
	t.done++
}

// deliver counts a delivery. The result is the time of the Submit, zero for an untimed or a repeated delivery.
func (t *tally) deliver(id string) (submitted time.Time) {
	text, ours := strings.CutPrefix(id, t.prefix)
	number, err := strconv.Atoi(text)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !ours || err != nil || number < 0 || number >= len(t.fates) {
		t.alien++
		return time.Time{}
	}
	t.copies[number]++
	switch {
	case t.copies[number] > 1:
		t.copies[number] = 2 // enough to know, and the counter cannot overflow
		t.further++
		return time.Time{}
	case t.fates[number] == rolledBack:
		t.ghosts++
		return time.Time{}
	}
	t.delivered++
	t.missing--
	return t.submitted[number]
}

// counts are the counters at a moment.
type counts struct{ done, failed, delivered, missing int64 }

func (t *tally) counts() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return counts{t.done, t.failed, t.delivered, t.missing}
}

// Balance compares sent and delivered messages.
type Balance struct {
	// Committed and RolledBack count messages by the producer's decision; Silent are the committed messages without a
	// Submit.
	Committed  int64 `json:"committed"`
	Silent     int64 `json:"silent"`
	RolledBack int64 `json:"rolled_back"`
	// Delivered counts ids, Copies the further deliveries of the same ids.
	Delivered int64 `json:"delivered"`
	Copies    int64 `json:"copies"`
	// Lost were committed and not delivered in time, Ghosts were rolled back and delivered, Alien have an unknown id.
	Lost   int64 `json:"lost"`
	Ghosts int64 `json:"ghosts"`
	Alien  int64 `json:"alien"`
}

// Even says whether the delivered messages are exactly the committed messages. Delivery is at least once, so copies are
// allowed.
func (b Balance) Even() bool { return b.Lost == 0 && b.Ghosts == 0 && b.Alien == 0 }

func (t *tally) balance() Balance {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := Balance{Delivered: t.delivered, Copies: t.further, Lost: t.missing, Ghosts: t.ghosts, Alien: t.alien}
	for _, f := range t.fates {
		switch f {
		case committed:
			b.Committed++
		case silent:
			b.Committed++
			b.Silent++
		case rolledBack:
			b.RolledBack++
		}
	}
	return b
}
