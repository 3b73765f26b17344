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

// uncleanEnd is the finding about coordinators that ended without a clean stop.
const uncleanEnd = "coordinators-unclean-end"

const endsWhy = "they were killed, crashed or hang; their messages wait until the leases end, " +
	"and consumers may get flagged copies"

const endsRemedy = "look at the end of their logs, at the kernel's log for the OOM killer, " +
	"and at journalctl or kubectl describe pod"

// ownFindings are the problems that this coordinator itself sees, except its checks. The others learn of them from its
// report.
func (a *App) ownFindings(now time.Time) (f findings) {
	f.access(&a.settings)
	f.certificates(a.doors.certificates.All(now), now)
	f.fullness(a.masters())
	f.unworked(&a.backlog.unworked)
	f.slow(a.slow.watch.All(), false)
	f.reload(&a.reloader)
	f.silentMasters(a.silentMasters())
	f.clockJump(a.redis.clock.last.Load(), now)
	f.queues(a.settings.Events, a.backlog.queues.Load())
	if desk := a.backlog.letters.Load(); desk != nil {
		f.letters(desk.States(), a.settings.Events.DeadLetterQueues)
	}
	return f
}

// derivedFindings are the problems that each coordinator finds in the reports of all.
func (a *App) derivedFindings(now time.Time) (f findings) {
	f.refusals(a.peers.Refusals(now))
	f.slow(a.slow.watch.All(), true)
	f.fleet(a.peers.Coordinators(now), now)
	f.ends(a.peers.Ends(peers.Memory, now), now)
	return f.derived()
}

// failingChecks are the checks that fail. A part that is not open yet is no problem: the start says so.
func (a *App) failingChecks(ctx context.Context) (f findings) {
	for _, check := range a.console.Checks(ctx) {
		if check.OK || *check.Cause == cause.NotServing {
			continue
		}
		f.add(trouble, check.Cause.Name, fmt.Sprintf("the check %q fails: %s", check.Name, check.Error),
			check.Cause.Why, check.Cause.Remedy).Subject = check.Name
	}
	return f
}

// findings are the problems that need an operator, the worst first, except the checks of this coordinator.
func (a *App) findings() []*adminv1.Finding { return a.presentWith(nil, time.Now()) }

// allFindings adds the failing checks: callers of the API do not see /readyz.
func (a *App) allFindings(ctx context.Context) []*adminv1.Finding {
	return a.presentWith(a.failingChecks(ctx), time.Now())
}

func (a *App) presentWith(f findings, now time.Time) []*adminv1.Finding {
	f = append(f, a.ownFindings(now)...)
	f = append(f, a.derivedFindings(now)...)
	return a.presentOf(a.peers.Problems(f, now), now)
}

// problems are what this coordinator tells the others and the record. Each end of a coordinator is an event there.
func (a *App) problems(ctx context.Context, now time.Time) []peers.Problem {
	derived := append(a.derivedFindings(now), a.downPeers(now)...)
	derived = slices.DeleteFunc(derived, func(p peers.Problem) bool { return p.Name == uncleanEnd })
	return slices.Concat(a.failingChecks(ctx), a.ownFindings(now), derived)
}

// downPeers are the producers and exchanges that fail at any coordinator.
func (a *App) downPeers(now time.Time) (f findings) {
	sums := a.peers.Sums(now)
	for _, p := range sums.Producers() {
		if p.Down(now) {
			of := cause.OfCall(p.Failure)
			down := f.add(trouble, of.Name, fmt.Sprintf("producer %s cannot be reached: %s", p.Name, p.Failure), of.Why,
				of.Remedy)
			down.Subject, down.Count = p.Name, 1
		}
	}
	for _, e := range sums.Exchanges() {
		of := cause.OfRefusal(e.Failure, e.Name, "")
		if e.Down(now) && of.Name != cause.MessageUnsent.Name { // the check of the broker tells of unsent messages
			f.add(trouble, of.Name, fmt.Sprintf("exchange %q does not take messages: %s", e.Name, e.Failure), of.Why,
				of.Remedy).Subject = cause.BrokerSubject(e.Broker)
		}
	}
	return f.derived()
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
		p := f.add(refusalSeverity(r), "producer-refused",
			fmt.Sprintf("refused calls of producer %s: %d since %s, the last at %s with %s: %s", r.Producer, r.Count,
				clock(r.FirstAt), clock(r.LastAt), r.Reason, r.Cause),
			"nothing of them is stored, and a business that waits for its half message does not run",
			refusalRemedies[r.Reason])
		p.Subject, p.Since, p.Until, p.Count = r.Producer, r.FirstAt, r.LastAt, r.Count
	}
}

// splits tells of producers whose replicas have different marker stores, and returns the other refusals.
func (f *findings) splits(all []peerstats.Refusal) (others []peerstats.Refusal) {
	for _, r := range all {
		if r.Reason != producerSplit {
			others = append(others, r)
			continue
		}
		p := f.add(trouble, "producer-split",
			fmt.Sprintf("answers of producer %s from another marker store: %d since %s, the last at %s: %s", r.Producer,
				r.Count, clock(r.FirstAt), clock(r.LastAt), r.Cause),
			"two databases are in use under one name; messages of a store that does not answer stay PENDING",
			"stop the process with the other database, or give it another name; if the database was replaced, give the new "+
				"one the identity of the old one")
		p.Subject, p.Since, p.Until, p.Count = r.Producer, r.FirstAt, r.LastAt, r.Count
	}
	return others
}

// refusalSeverity tells a producer without any success from a producer with mistakes, or one that does not attend yet.
func refusalSeverity(r peerstats.Refusal) peers.Severity {
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
	p := f.add(severity, uncleanEnd,
		fmt.Sprintf("coordinators that ended without a clean stop: %d within the last hour, "+
			"%d in the last ten minutes; the last was %s, last seen at %s", len(all), lately, all[0].Instance,
			clock(all[0].LastSeenAt)),
		endsWhy, endsRemedy)
	p.Since, p.Count = all[len(all)-1].LastSeenAt, int64(len(all))
}

// queues reports watched queues that are above their threshold or missing.
func (f *findings) queues(settings config.Events, queues *queueDepths) {
	if queues == nil || !queues.known {
		return // another finding reports an unavailable broker
	}
	for _, queue := range settings.DeadLetterQueues {
		if n := queues.depths[queue]; n > 0 {
			p := f.add(warning, "queue-dead-letters", fmt.Sprintf("dead letters in queue %s: %d", queue, n),
				"their consumers gave up, and they are not handled",
				"msghandler dlq list --queue "+queue+" shows why; fix the consumer, then msghandler dlq replay")
			p.Subject, p.Count = queue, int64(n)
		}
	}
	for _, queue := range settings.Queues {
		if n := queues.depths[queue]; n >= settings.QueueMessages {
			p := f.add(warning, "queue-long", fmt.Sprintf("messages in queue %s: %d, and events.queue_messages is %d",
				queue, n, settings.QueueMessages),
				"its consumers are slower than its producers, or gone",
				"rabbitmqctl list_queues name messages consumers; start consumers")
			p.Subject, p.Count = queue, int64(n)
		}
	}
	for _, queue := range slices.Concat(settings.DeadLetterQueues, settings.Queues) {
		if _, there := queues.depths[queue]; !there {
			f.add(warning, "queue-missing", fmt.Sprintf("the watched queue %s does not exist", queue),
				"no alert reports its backlog",
				"check its name in events.queues or events.dead_letter_queues, and the virtual host of amqp.url").Subject = queue
		}
	}
}
