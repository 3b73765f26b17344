package simulation

import (
	"context"
	"time"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// operatorFaults are the acts of operators, at any coordinator, while other faults strike. What they discard is
// excused message by message: see acts.
var operatorFaults = []fault{
	{name: "retries", chance: 30, start: operating(retryMessages)},
	{name: "discards", chance: 20, start: operating(discardMessages)},
	{name: replaysName, chance: 30, start: operating(replayMessages)},
	{name: reloadsName, chance: 20, start: reloadSettings},
}

// In worlds with replaysName there is an archive, and in those with reloadsName coordinators read their settings again.
const (
	replaysName = "replays"
	reloadsName = "reloads"
)

// operatorTimeout is how long an operator waits for a call.
const operatorTimeout = 10 * time.Second

// operator is an operator's call at a coordinator.
type operator struct {
	ctx    context.Context //nolint:containedctx // a call has one life
	world  *World
	draws  draws
	client adminv1.AdminServiceClient
}

// operating returns a fault in which an operator acts again and again. An act that fails is none: faults strike it too.
func operating(act func(o operator) error) func(context.Context, *World, draws) {
	return func(ctx context.Context, w *World, d draws) {
		w.repeat(ctx, d, func() {
			n := w.Nodes[d.intn("coordinator", len(w.Nodes))]
			client, closeConn, err := w.admin(n)
			if err != nil {
				w.report("%v", err)
				return
			}
			defer closeConn()
			ctx, cancel := context.WithTimeout(ctx, operatorTimeout)
			defer cancel()
			w.Ledger.Fault("an operator: " + d.of)
			err = act(operator{ctx, w, d, client})
			w.note("an operator at coordinator %d: %s: %v", n.Number, d.of, err)
		})
	}
}

// quota is a key that needs no restart.
const quota = "producers.called.max_unfinished"

// reloadSettings changes a quota at a coordinator again and again, as by a signal. A restarted process has the first
// settings.
func reloadSettings(ctx context.Context, w *World, d draws) {
	w.repeat(ctx, d, func() {
		n := w.Nodes[d.intn("coordinator", len(w.Nodes))]
		value := []string{"2", "5", "1000000"}[d.intn("value", 3)]
		n.mu.Lock()
		n.flags[quota] = value
		reload := n.reload
		n.mu.Unlock()
		w.note("coordinator %d reads its settings again, with a quota of %s", n.Number, value)
		timer := time.NewTimer(operatorTimeout)
		defer timer.Stop()
		select {
		case reload <- struct{}{}:
		case <-timer.C: // the coordinator stands still, or is killed
		}
	})
}

// selection draws messages in one of some states: by name, or by a filter, which has its producer half of the time.
func (o operator) selection(states ...pb.State) (*adminv1.MessageSelection, error) {
	state := states[o.draws.intn("state", len(states))]
	filter := &adminv1.MessageFilter{State: state}
	byFilter, ofProducer := o.draws.intn("by filter", 2) == 1, o.draws.intn("of producer", 2) == 1
	producer := o.world.producers[o.draws.intn("producer", len(o.world.producers))].name()
	if byFilter {
		if ofProducer {
			filter.Producer = producer
		}
		return &adminv1.MessageSelection{Filter: filter}, nil
	}
	page, err := o.client.ListMessages(o.ctx, &adminv1.ListMessagesRequest{Filter: filter})
	if err != nil {
		return nil, err
	}
	s := &adminv1.MessageSelection{}
	for _, r := range page.GetRecords() {
		if len(s.Names) < 3 && o.draws.intn("chosen", 2) == 0 {
			s.Names = append(s.Names, &adminv1.MessageName{Producer: r.GetProducer(), Id: r.GetMessage().GetId()})
		}
	}
	return s, nil
}

func retryMessages(o operator) error {
	s, err := o.selection(pb.State_STATE_PENDING, pb.State_STATE_SENDABLE, pb.State_STATE_ACKNOWLEDGED,
		pb.State_STATE_ABANDONED, pb.State_STATE_DEAD)
	if err != nil || s.GetFilter() == nil && len(s.GetNames()) == 0 {
		return err
	}
	_, err = o.client.RetryMessages(o.ctx, &adminv1.RetryMessagesRequest{Selection: s})
	return err
}

func discardMessages(o operator) error {
	s, err := o.selection(pb.State_STATE_PENDING, pb.State_STATE_ABANDONED, pb.State_STATE_DEAD, pb.State_STATE_DEAD)
	if err != nil || s.GetFilter() == nil && len(s.GetNames()) == 0 {
		return err
	}
	o.world.acts.ask(s)
	_, err = o.client.DiscardMessages(o.ctx, &adminv1.DiscardMessagesRequest{
		Selection: s, Limit: int32(1 + o.draws.intn("limit", 3)),
	})
	return err
}

// ask notes what an operator is about to discard.
func (a *acts) ask(s *adminv1.MessageSelection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range s.GetNames() {
		a.asked[n.GetProducer()+"/"+n.GetId()] = true
	}
	if s.GetFilter() != nil {
		a.producers[s.GetFilter().GetProducer()] = true
	}
}

// replayMessages replays finished messages, under their ids or as messages of their own.
func replayMessages(o operator) error {
	r := &adminv1.ReplayMessagesRequest{Limit: int32(1 + o.draws.intn("limit", 5))}
	byFilter := o.draws.intn("by filter", 2) == 1
	producer := o.world.producers[o.draws.intn("producer", len(o.world.producers))].name()
	if o.draws.intn("own", 2) == 1 {
		r.NewIdSuffix = suffix
	}
	if byFilter {
		r.Selection = &adminv1.FinishedSelection{Filter: &adminv1.FinishedFilter{Producer: producer}}
		_, err := o.client.ReplayMessages(o.ctx, r)
		return err
	}
	page, err := o.client.ListFinished(o.ctx, &adminv1.ListFinishedRequest{})
	if err != nil {
		return err
	}
	r.Selection, r.Limit = &adminv1.FinishedSelection{}, 0
	for _, m := range page.GetMessages() {
		if m.GetReplayable() && len(r.Selection.Names) < 3 && o.draws.intn("chosen", 4) == 0 {
			name := &adminv1.FinishedName{Producer: m.GetProducer(), Id: m.GetMessage().GetId()}
			if o.draws.intn("entry", 2) == 0 {
				name.Entry = m.GetEntry()
			}
			r.Selection.Names = append(r.Selection.Names, name)
		}
	}
	if len(r.Selection.Names) == 0 {
		return nil
	}
	_, err = o.client.ReplayMessages(o.ctx, r)
	return err
}
