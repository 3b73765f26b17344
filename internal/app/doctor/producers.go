package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/app/callbacks"
	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
)

const (
	areaProducers = "producers"
	// areaOfProducer begins the areas of single producers.
	areaOfProducer = "producer "
)

// unknowable makes an id that no producer can know.
func unknowable() string { return halfmsg.ProbePrefix + rand.Text() }

// examineProducers asks every producer with a known target, producers that attend, and producers of pending messages,
// about an id that the producer cannot know.
func examineProducers(ctx context.Context, e Examination) []Finding {
	r := report{area: areaProducers}
	streams := e.newStreams()
	defer streams.Close()
	client := r.callbacks(&e, streams)
	if client == nil {
		return r.all
	}
	defer client.Close()
	known := e.knownTargets()
	found := e.askProducers(ctx, client, known)
	attending, allAttending := e.attendingTargets(ctx, known)
	pending, allPending := e.pendingTargets(ctx, client, known)
	switch {
	case len(known)+len(attending)+len(pending) > 0:
	case e.statsOf(ctx) == nil:
		return r.orOK("none was asked: no callback target is known, and no coordinator says which producers attend; " +
			"name one with --producer NAME=HOST:PORT or NAME=URL")
	default:
		return r.orOK("none attends and no callback target is known; name one with --producer NAME=HOST:PORT or NAME=URL")
	}
	r.unasked(allPending, allAttending)
	found = slices.Concat(found, e.askProducers(ctx, client, slices.Concat(attending, pending)), r.all)
	if refused := streams.refusal(); refused != nil && ctx.Err() == nil {
		unasked := slices.Concat(known, attending, pending)
		found = slices.DeleteFunc(found, func(f Finding) bool {
			return slices.ContainsFunc(unasked, func(to halfmsg.Target) bool {
				return attends(to) && f.Area == areaOfProducer+to.Producer
			})
		})
		found = append(found, unasks(e.Coordinator, refused)...)
	}
	return found
}

// callbacks returns the client with which a coordinator of these settings calls producers. On failure the result is
// nil, and there is a finding.
func (r *report) callbacks(e *Examination, streams *streams) *callback.Client {
	const why = "the coordinator does not start"
	settings := e.open(e.Settings)
	config, _, err := callbacks.Config(&settings, slog.New(slog.DiscardHandler))
	config.Handshake = e.handshakes("producers")
	if err != nil {
		r.trouble("callbacks-credentials", err.Error(), why, "correct that file, or name another")
		return nil
	}
	config.Attending = streams.client
	client, err := callback.New(config)
	if err != nil {
		r.trouble("producer-forbidden", err.Error(), why, "correct the target, or allow it in callbacks.allow")
		return nil
	}
	return client
}

func (e *Examination) examineProducer(ctx context.Context, client *callback.Client, name, address string) []Finding {
	r := report{area: areaOfProducer + name}
	to, reached := r.find(client, name, address)
	if !reached {
		return r.all
	}
	id, asked := unknowable(), time.Now()
	verdicts, err := client.Confirm(ctx, to, []string{id}, false)
	if err != nil {
		r.unreachable(err)
		return r.all
	}
	r.took(time.Since(asked), e.Settings.Confirm.Timeout)
	r.verdict(verdicts[id], id)
	if err := client.DeleteBusiness(ctx, to, []string{id}); err != nil {
		r.keepsMarkers(err)
	}
	return r.orOK(fmt.Sprintf("answers %s, and UNKNOWN of an id that cannot exist", place(to)))
}

// find looks where a producer is called back; nothing is dialled yet.
func (r *report) find(client *callback.Client, name, address string) (to halfmsg.Target, found bool) {
	resolved, err := client.Resolve(name, address)
	if err != nil {
		r.because(cause.OfTarget(err.Error()), err.Error())
	}
	return halfmsg.Target{Producer: name, Address: resolved}, err == nil
}

// unreachable reports why a producer gave no answer.
func (r *report) unreachable(err error) { r.because(cause.OfCall(err.Error()), err.Error()) }

// took judges the duration of an answer. A producer that needs half of the timeout when idle exceeds the timeout under
// load.
func (r *report) took(took, timeout time.Duration) {
	if took > timeout/2 {
		r.warn("producer-slow",
			fmt.Sprintf("took %s to answer; confirm.timeout is %v", operate.Duration(took), timeout),
			"under load its answers will come too late, and its messages wait", "speed up its Confirm, or raise confirm.timeout")
	}
}

// verdict judges the answer about an id that cannot exist, to a question that is not final.
func (r *report) verdict(verdict halfmsg.Verdict, id string) {
	switch verdict {
	case halfmsg.VerdictCommitted:
		r.trouble("producer-commits-unknown", "says COMMITTED of an id that cannot exist ("+id+")",
			"it would have messages published whose business never happened", "answer COMMITTED only when the marker is there")
	case halfmsg.VerdictRolledBack:
		r.trouble("producer-hasty", "says ROLLED_BACK of an id that it does not know, though the question was not final",
			"a business that is still running would lose its message",
			"answer UNKNOWN, and ROLLED_BACK only when it can never commit")
	case halfmsg.VerdictUnavailable:
		r.because(cause.ProducerUnable, "says UNAVAILABLE: it cannot look up its transactions")
	}
}

func (r *report) keepsMarkers(err error) {
	r.warn("producer-keeps-markers", err.Error(), "its markers are never deleted, and pile up",
		"DeleteBusiness must succeed for an id that is gone already")
}
