package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	// pendingPage is how many of the oldest pending messages are read for their callback targets.
	pendingPage = 1000
	// maxPendingTargets bounds the targets of pending messages that are asked.
	maxPendingTargets = 20
	// maxAtOnce bounds the producers that are asked at the same time.
	maxAtOnce = 8
)

// askProducers asks targets side by side, and returns the findings in the order of the targets.
func (e *Examination) askProducers(ctx context.Context, client *callback.Client, targets []halfmsg.Target) []Finding {
	found := make([][]Finding, len(targets))
	places := make(chan struct{}, maxAtOnce)
	var asking sync.WaitGroup
	for i, to := range targets {
		asking.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			found[i] = e.examineProducer(ctx, client, to.Producer, to.Address)
		})
	}
	asking.Wait()
	return slices.Concat(found...)
}

// knownTargets are the callback targets of the settings and of the operator, by producer.
func (e *Examination) knownTargets() (all []halfmsg.Target) {
	targets := e.Settings.Targets()
	maps.Copy(targets, e.Producers)
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		all = append(all, halfmsg.Target{Producer: name, Address: targets[name]})
	}
	return all
}

// pendingTargets are the callback targets of the oldest pending messages, without the known ones and without producers
// that attend: at most maxPendingTargets, and the number of all. Without callbacks.allow in the configuration there are
// none, since nothing says which of the targets may be called.
func (e *Examination) pendingTargets(
	ctx context.Context, client *callback.Client, known []halfmsg.Target,
) (targets []halfmsg.Target, all int) {
	if slices.Contains(e.Defaults, sectionCallbacks) {
		return nil, 0
	}
	seen := map[halfmsg.Target]bool{}
	for _, to := range known {
		seen[canonical(client, to)] = true
	}
	for _, m := range e.pending(ctx) {
		to := canonical(client, halfmsg.Target{Producer: m.GetProducer(), Address: m.GetCallbackTarget()})
		if to.Address == "" || attends(to) || seen[to] {
			continue
		}
		seen[to] = true
		if all++; all <= maxPendingTargets {
			targets = append(targets, to)
		}
	}
	return targets, all
}

// canonical is a target as the coordinator calls the target; a forbidden target stays as it is.
func canonical(client *callback.Client, to halfmsg.Target) halfmsg.Target {
	if address, err := client.Resolve(to.Producer, to.Address); err == nil {
		to.Address = address
	}
	return to
}

// pending reads the oldest pending messages; none where no coordinator answers, which is a finding of its own.
func (e *Examination) pending(ctx context.Context) []*adminv1.MessageRecord {
	if e.statsOf(ctx) == nil {
		return nil
	}
	conn, err := e.dial()
	if err != nil {
		return nil
	}
	defer conn.Close()
	page, err := adminv1.NewAdminServiceClient(conn).ListMessages(ctx, &adminv1.ListMessagesRequest{
		Filter:   &adminv1.MessageFilter{State: pb.State_STATE_PENDING},
		PageSize: pendingPage,
	})
	if err != nil {
		return nil
	}
	return page.GetRecords()
}

// unasked notes that there are more targets, or producers that attend, than are asked.
func (r *report) unasked(targets, attending int) {
	if targets > maxPendingTargets {
		r.note("producers-unasked",
			fmt.Sprintf("pending messages name %d further callback targets; %d of them were asked", targets, maxPendingTargets),
			"nothing is known of the others", "name one of the others with --producer NAME=HOST:PORT")
	}
	if attending > maxPendingTargets {
		r.note("producers-unasked", fmt.Sprintf("%d producers attend; %d of them were asked", attending, maxPendingTargets),
			"nothing is known of the others", "ask one of the others with msghandler verify-producer NAME")
	}
}
