package attend

import (
	"context"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

const (
	// AnnounceEvery is how often streams are announced.
	AnnounceEvery = 8 * time.Second
	// announceTimeout bounds the announcement of all producers.
	announceTimeout = 5 * time.Second
	// graceTime is what a turn may take.
	graceTime = 2 * time.Second

	// absenceKnown is for how long a producer that does not attend is not looked for again, attendanceKnown for how long
	// one that does.
	absenceKnown    = 200 * time.Millisecond
	attendanceKnown = 10 * time.Minute
	// maxRecent bounds the remembered producers.
	maxRecent = 10_000
)

// presence is how long an announcement lasts: some missed turns. A coordinator that was killed costs the others a call
// for each question meanwhile.
func (c *Config) presence() time.Duration { return 4*c.AnnounceEvery - graceTime }

// silence is how long no peer message may arrive although the coordinator sends one to itself in each turn. Then the
// subscription is dead, for example with a server of Redis that is no master any more.
func (c *Config) silence() time.Duration { return 2*c.AnnounceEvery + graceTime }

// lately is how long ago a producer was announced at most that may have lost its streams just now.
func (c *Config) lately() time.Duration { return c.AnnounceEvery + graceTime }

// announce tells the others which producers attend here, until the Hub is closed.
func (h *Hub) announce(post Post) {
	tick := time.NewTicker(h.config.AnnounceEvery)
	defer tick.Stop()
	h.turn(post, h.announceAll)
	for {
		select {
		case <-tick.C:
			h.turn(post, h.announceAll)
		case <-h.announceNow:
			h.turn(post, h.takeBack)
		case <-h.life.Done():
			h.withdraw(post)
			return
		}
	}
}

// turn makes one call of announce. A failure is logged; the next turn repeats the call.
func (h *Hub) turn(post Post, call func(ctx context.Context, post Post) error) {
	ctx, cancel := context.WithTimeout(h.life, announceTimeout)
	defer cancel()
	var err error
	if failure := lifecycle.Recovered(func() { err = call(ctx, post) }); failure != nil {
		err = failure
	}
	if err == nil || h.life.Err() != nil {
		return
	}
	if suppressed, due := h.logged.Due("announce"); due && h.isUsed() {
		h.config.Logger.Warn("where producers attend is not stored; other coordinators may not find their streams; "+
			"look after Redis", "cause", err, "not_logged_before", suppressed)
	}
}

// announceAll announces the producers with streams, takes back the others, and sends a peer message to this
// coordinator.
func (h *Hub) announceAll(ctx context.Context, post Post) error {
	here, _ := h.announcements()
	if err := post.Announce(ctx, h.config.Instance, here, h.config.presence()); err != nil {
		return err
	}
	if err := h.takeBack(ctx, post); err != nil {
		return err
	}
	_, err := h.mail(ctx, h.config.Instance, peerMessage{Kind: kindCheck})
	return err
}

// takeBack takes back the announcements of producers without streams. A stream that joins meanwhile is announced again.
func (h *Hub) takeBack(ctx context.Context, post Post) error {
	_, gone := h.announcements()
	if len(gone) == 0 {
		return nil
	}
	if err := post.Announce(ctx, h.config.Instance, gone, 0); err != nil {
		return err
	}
	if back := h.strike(gone); len(back) > 0 {
		return post.Announce(ctx, h.config.Instance, back, h.config.presence())
	}
	return nil
}

// announcements are the announced producers, with streams here and without.
func (h *Hub) announcements() (here, gone []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for producer := range h.announced {
		if h.rosters[producer] != nil {
			here = append(here, producer)
		} else {
			gone = append(gone, producer)
		}
	}
	return here, gone
}

// strike forgets announcements, and returns the producers that have a stream again.
func (h *Hub) strike(gone []string) (back []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, producer := range gone {
		if h.rosters[producer] != nil {
			back = append(back, producer)
		} else {
			delete(h.announced, producer)
		}
	}
	return back
}

// withdraw takes all announcements back, so that the others do not ask here any more.
func (h *Hub) withdraw(post Post) {
	here, gone := h.announcements()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = post.Announce(ctx, h.config.Instance, append(here, gone...), 0) // they end by themselves
}

// cancelWhenSilent ends a subscription in which no peer messages arrive any more.
func (h *Hub) cancelWhenSilent(ctx context.Context, cancel context.CancelFunc) {
	began, silence := time.Now(), h.config.silence()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			if received := time.Unix(0, h.lastReceived.Load()); now.Sub(received) > silence && now.Sub(began) > silence {
				cancel()
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// recent remembers for a while which producers attend. The zero value remembers nothing.
type recent struct {
	mu  sync.Mutex
	all map[string]known
}

type known struct {
	attended bool
	until    time.Time
}

func (r *recent) get(producer string) (attended, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.all[producer]
	return k.attended, time.Now().Before(k.until)
}

func (r *recent) put(producer string, attended bool) {
	lasting := absenceKnown
	if attended {
		lasting = attendanceKnown
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil || len(r.all) >= maxRecent {
		r.all = map[string]known{}
	}
	r.all[producer] = known{attended, time.Now().Add(lasting)}
}
