package bench

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fate is what is to become of a message.
type fate uint8

const (
	committed fate = iota
	// silent: committed, and nobody says so.
	silent
	rolledBack
)

// tally keeps what became of every message of a run, by its number. It is safe for concurrent use.
type tally struct {
	prefix string

	mu sync.Mutex
	// fates, copies and submitted are by number: what was to become of a message, how often it was delivered, and when it
	// was submitted, zero where it was not or its delivery is not timed.
	fates     []fate
	copies    []uint8
	submitted []time.Time

	done, failed, delivered, further, alien, ghosts, missing int64
}

// plan takes up a message that is to have one of the fates by their shares, and returns its number and its fate. The
// fates are spread evenly, so that the shares hold for short runs as well.
func (t *tally) plan(silentShare, rollbackShare float64) (int, fate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// Multiples of the golden ratio, of which only the fraction counts, fill an interval as evenly as can be.
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

// begin takes up a message with a fate and returns its number.
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

// refused says that a message never was, as far as its producer knows: its transaction did not run.
func (t *tally) refused(number int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fates[number] != rolledBack {
		t.missing--
	}
	t.fates[number] = rolledBack
}

// submit says that a message is submitted now, and that its delivery is timed.
func (t *tally) submit(number int, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.submitted[number] = at
}

// end says that a caller is done with its message, and whether it got its answer.
func (t *tally) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.failed++
		return
	}
	t.done++
}

// deliver counts a delivery. It returns when the message was submitted, zero where it is not timed or was delivered
// before.
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
		t.copies[number] = 2 // enough to know, and it cannot run over
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

// counts are those of a moment.
type counts struct{ done, failed, delivered, missing int64 }

func (t *tally) counts() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return counts{t.done, t.failed, t.delivered, t.missing}
}

// Balance is what was sent against what was delivered.
type Balance struct {
	// Committed, of which Silent said nothing, and RolledBack are what the producers did.
	Committed  int64 `json:"committed"`
	Silent     int64 `json:"silent"`
	RolledBack int64 `json:"rolled_back"`
	// Delivered counts ids, Copies the further deliveries of the same ids.
	Delivered int64 `json:"delivered"`
	Copies    int64 `json:"copies"`
	// Lost committed and were not delivered in time; Ghosts rolled back and were; Alien has an id that nobody sent.
	Lost   int64 `json:"lost"`
	Ghosts int64 `json:"ghosts"`
	Alien  int64 `json:"alien"`
}

// Even says whether each that committed was delivered, and nothing else. Copies are allowed: delivery is at least once.
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
