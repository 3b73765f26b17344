package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/peers"
	"github.com/msghandler/msghandler/internal/peerstats"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

const (
	// maxRefused bounds the refused producers among the findings: strangers may use many names.
	maxRefused = 10
	// crashLoop is how many ends in endsLately are no accident any more.
	crashLoop = 3
)

const endsRemedy = "look at the end of their logs, at the kernel's log for the OOM killer, " +
	"and at journalctl or kubectl describe pod"

// findings are the problems of this coordinator that need an operator, the worst first, except its checks.
func (a *App) findings(now time.Time) []*adminv1.Finding {
	var f findings
	f.access(&a.settings)
	f.fullness(a.masters())
	f.unworked(&a.backlog.unworked)
	f.refusals(a.peers.Refusals(now))
	f.reload(&a.reloader)
	f.fleet(a.peers.Coordinators(now), now)
	f.silentMasters(a.silentMasters())
	f.clockJump(a.redis.clock.last.Load(), now)
	f.ends(a.peers.Ends(peers.Memory, now), now)
	f.queues(a.settings.Events, a.backlog.queues.Load())
	if desk := a.backlog.letters.Load(); desk != nil {
		f.letters(desk.States(), a.settings.Events.DeadLetterQueues)
	}
	slices.SortStableFunc(f, func(a, b *adminv1.Finding) int {
		return cmp.Compare(b.GetSeverity(), a.GetSeverity())
	})
	return f
}

// allFindings adds the failing checks that leave the coordinator ready: callers of the API do not see /readyz.
func (a *App) allFindings(ctx context.Context) []*adminv1.Finding {
	var f findings
	for _, name := range a.degrading() {
		if err := a.checks.named(name).Run(ctx); err != nil {
			of := cause.Of(a.partOf(name), err)
			f.add(trouble, of.Name, fmt.Sprintf("the check %q of %s fails: %v", name, a.process.instance, err), of.Why,
				of.Remedy)
		}
	}
	return append(f, a.findings(time.Now())...)
}

// refusals tells of producers whose calls were refused lately.
func (f *findings) refusals(all []peerstats.Refusal) {
	all = f.splits(all)
	slices.SortStableFunc(all, func(a, b peerstats.Refusal) int {
		return cmp.Compare(refusalSeverity(b), refusalSeverity(a))
	})
	for i, r := range all {
		if i == maxRefused {
			f.add(warning, "producer-refused", fmt.Sprintf("calls of %d further producers are refused", len(all)-i),
				"nothing of them is stored", "msghandler_refusals_total and the log name them")
			return
		}
		f.add(refusalSeverity(r), "producer-refused",
			fmt.Sprintf("refused calls of producer %s: %d since %s, the last at %s with %s: %s", r.Producer, r.Count,
				clock(r.FirstAt), clock(r.LastAt), r.Reason, r.Cause),
			"nothing of them is stored, and a business that waits for its half message does not run",
			refusalRemedies[r.Reason])
	}
}

// splits tells of producers whose replicas have different marker stores, and returns the other refusals.
func (f *findings) splits(all []peerstats.Refusal) (others []peerstats.Refusal) {
	for _, r := range all {
		if r.Reason != producerSplit {
			others = append(others, r)
			continue
		}
		f.add(trouble, "producer-split",
			fmt.Sprintf("answers of producer %s from another marker store: %d since %s, the last at %s: %s", r.Producer,
				r.Count, clock(r.FirstAt), clock(r.LastAt), r.Cause),
			"two databases are in use under one name; messages of a store that does not answer stay PENDING",
			"stop the process with the other database, or give it another name; if the database was replaced, give the new "+
				"one the identity of the old one")
	}
	return others
}

// refusalSeverity tells a producer without any success from a producer with mistakes, or one that does not attend yet.
func refusalSeverity(r peerstats.Refusal) adminv1.Severity {
	if r.Reason == "INVALID_ARGUMENT" || r.Reason == "NOT_ATTENDED" {
		return warning
	}
	return trouble
}

// ends reports coordinators that ended without a clean stop, the latest first.
func (f *findings) ends(all []peers.End, now time.Time) {
	if len(all) == 0 {
		return
	}
	lately := 0
	for _, end := range all {
		if now.Sub(end.LastSeenAt) < endsLately {
			lately++
		}
	}
	severity := warning
	if lately >= crashLoop {
		severity = trouble
	}
	f.add(severity, "coordinators-unclean-end",
		fmt.Sprintf("coordinators that ended without a clean stop: %d within the last hour, "+
			"%d in the last ten minutes; the last was %s, last seen at %s", len(all), lately, all[0].Instance,
			clock(all[0].LastSeenAt)),
		"they were killed, crashed or hang; their messages wait until the leases end, "+
			"and consumers may get flagged copies",
		endsRemedy)
}

// queues reports watched queues that are above their threshold or missing.
func (f *findings) queues(settings config.Events, queues *queueDepths) {
	if queues == nil || !queues.known {
		return // another finding reports an unavailable broker
	}
	for _, queue := range settings.DeadLetterQueues {
		if n := queues.depths[queue]; n > 0 {
			f.add(warning, "queue-dead-letters", fmt.Sprintf("dead letters in queue %s: %d", queue, n),
				"their consumers gave up, and they are not handled",
				"msghandler dlq list --queue "+queue+" shows why; fix the consumer, then msghandler dlq replay")
		}
	}
	for _, queue := range settings.Queues {
		if n := queues.depths[queue]; n >= settings.QueueMessages {
			f.add(warning, "queue-long", fmt.Sprintf("messages in queue %s: %d, and events.queue_messages is %d",
				queue, n, settings.QueueMessages),
				"its consumers are slower than its producers, or gone",
				"rabbitmqctl list_queues name messages consumers; start consumers")
		}
	}
	for _, queue := range slices.Concat(settings.DeadLetterQueues, settings.Queues) {
		if _, there := queues.depths[queue]; !there {
			f.add(warning, "queue-missing", fmt.Sprintf("the watched queue %s does not exist", queue),
				"no alert reports its backlog",
				"check its name in events.queues or events.dead_letter_queues, and the virtual host of amqp.url")
		}
	}
}
