package random

import (
	"context"
	"time"

	"pgregory.net/rapid"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// step is one event. A chooses the instance, B the message or effect, C the result.
type step struct {
	Do      string
	A, B, C int
}

// deeds are the possible steps, each as often as it is likely.
var deeds = []string{
	"go on", "go on", "go on", "go on", "all go on", "all go on", "all go on", "all go on",
	"send", "send", "send", "send other", "commit", "commit", "roll back",
	"submit", "submit", "submit", "trusted submit", "trusted submit", "rollback",
	"confirm pass", "confirm pass", "confirm pass", "send pass", "send pass", "send pass", "delete pass", "delete pass",
	"wait a moment", "wait a little", "wait a little", "wait for a lease", "wait for a lease", "wait long",
	"die", "broker", "retry", "discard",
}

func sequences() *rapid.Generator[[]step] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			Do: rapid.SampledFrom(deeds).Draw(t, "do"), A: rapid.IntRange(0, owners-1).Draw(t, "a"),
			B: rapid.IntRange(0, 9).Draw(t, "b"), C: rapid.IntRange(0, 63).Draw(t, "c"),
		}
	}), 20, 80)
}

var spans = map[string]time.Duration{
	"wait a moment": 100 * time.Millisecond, "wait a little": 2 * time.Second, "wait for a lease": 12 * time.Second,
	"wait long": 3 * time.Minute,
}

// answer spreads C, of which small numbers are drawn most often, over all kinds of answers.
func (s step) answer() int { return s.C * 37 % 64 }

func (w *world) do(s step) {
	n, name := w.instances[s.A], w.names[s.B%len(w.names)]
	answer := s.answer()
	w.tell("%s: owner%d %s %d", s.Do, s.A, name, answer)
	switch s.Do {
	case "go on":
		if waiting := w.waiting(); len(waiting) > 0 {
			w.release(waiting[s.B%len(waiting)], answer)
		}
	case "all go on":
		for _, e := range w.waiting() {
			w.release(e, answer)
		}
	case "confirm pass":
		n.pass(&n.confirming, n.confirmer.Pass)
	case "send pass":
		n.pass(&n.sending, n.sender.Pass)
	case "delete pass":
		n.pass(&n.deleting, n.confirmer.PassAcknowledged)
	case "die":
		n.die()
	case "broker":
		w.mu.Lock()
		w.brokerAway = !w.brokerAway
		w.mu.Unlock()
	case "commit", "roll back":
		w.decide(name, s.Do == "commit")
	case "trusted submit": // the producer commits, and says so
		w.decide(w.names[len(w.names)-1], true)
		w.call(n, s.Do, name, s.C)
	default:
		if span, is := spans[s.Do]; is {
			w.advance(span)
			return
		}
		w.call(n, s.Do, name, s.C)
	}
}

// pass makes a pass, as a cron does: not while the last pass is under way.
func (n *instance) pass(busy *bool, pass func(context.Context) (bool, error)) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if *busy {
		return
	}
	*busy = true
	go func() {
		_, _ = pass(context.Background())
		n.w.mu.Lock()
		*busy = false
		n.w.mu.Unlock()
	}()
}

// decide ends a local transaction.
func (w *world) decide(name halfmsg.Name, commit bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	it := w.model.items[name]
	if !it.sent || it.truth != running {
		return
	}
	it.truth = rolledBack
	if commit {
		it.truth = committed
	}
}

// call makes one call of a producer or an operator.
func (w *world) call(n *instance, do string, name halfmsg.Name, c int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, names, it := context.Background(), []halfmsg.Name{name}, w.model.items[name]
	switch do {
	case "send", "send other":
		if it.discarded {
			return // a new message under the old name, which is another story
		}
		message := w.message(name, c, do == "send other")
		w.model.created(&message, n.store.Create(ctx, []halfmsg.Message{message})[0])
	case "submit":
		w.submit(n, name)
	case "trusted submit":
		w.submit(n, w.names[len(w.names)-1])
	case "rollback":
		// A producer sends a Rollback about a rolled back business, or too late.
		if it.truth == rolledBack || it.state == halfmsg.Sendable || it.state == halfmsg.Dead ||
			it.state == halfmsg.Acknowledged || it.state.Final() {
			w.model.asked(name, halfmsg.EventRollback, n.store.Rollback(ctx, names)[0])
		}
	case "retry":
		w.model.asked(name, halfmsg.EventRetry, n.store.Retry(ctx, names, "", "")[0])
	case "discard":
		if c%3 > 0 {
			return // a discarded message cannot go wrong any more
		}
		w.model.asked(name, halfmsg.EventDiscard, n.store.Discard(ctx, names, halfmsg.None)[0])
	}
}

// submit makes a Submit. A trusted producer submits committed businesses only.
func (w *world) submit(n *instance, name halfmsg.Name) {
	trusts, until := name.Producer == trusted, time.Now().Add(lease)
	if trusts && w.model.items[name].truth != committed {
		return
	}
	var submitted halfmsg.Submitted
	if trusts || w.defect.believed {
		submitted = n.store.SubmitTrusted(context.Background(), []halfmsg.Name{name}, lease)[0]
		w.model.trusted(name, submitted, lease.Milliseconds())
	} else {
		submitted = n.store.Submit(context.Background(), []halfmsg.Name{name}, lease)[0]
		w.model.submitted(name, submitted, lease.Milliseconds())
	}
	if submitted.Claim != nil {
		go n.confirmer.Offer([]halfmsg.Claim{*submitted.Claim}, until)
	}
}

// message is the producer's message: the same each time, unless the step asks for another content.
func (w *world) message(name halfmsg.Name, c int, other bool) halfmsg.Message {
	it := w.model.items[name]
	if it.sent && !other {
		return it.content
	}
	m := halfmsg.Message{
		Name: name, Exchange: "x", RoutingKey: "key", Headers: map[string]string{"a": "b"},
		Body:           []byte("body of " + name.ID),
		CallbackTarget: "127.0.0.1:1", ConfirmAfter: time.Duration(c%3) * time.Second,
		Delay: time.Duration(c/4%2) * time.Duration(c/8) * time.Second,
	}
	if w.keyed && name.Producer == "orders" {
		m.OrderingKey, m.Delay = "customer-7", 0
	}
	if it.sent {
		m.Body = []byte("other")
	}
	return m
}
