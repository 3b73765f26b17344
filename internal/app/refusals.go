package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/events"
	"github.com/msghandler/msghandler/internal/peerstats"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// refusalRemedies are the actions for a refused producer, by reason.
var refusalRemedies = map[string]string{
	"CALLBACK_FORBIDDEN": "allow its target in callbacks.allow and its network in callbacks.networks, " +
		"or correct the target that the producer sends, or that producers.NAME.target names",
	"CALLER_FORBIDDEN": "name it in producers.NAME.callers or grpc.callers, or in the producers of its token, " +
		"or have it call under its own name; look who it is, if you do not know it",
	"POLICY_FORBIDDEN": "the cause names the field and the keys: list the name there, if the producer is to use it, " +
		"or fix the producer",
	"INVALID_ARGUMENT": "the cause names the field: fix the producer; " +
		"for callback_target have the producer send one, or set producers.NAME.target",
	"NOT_ATTENDED": "start a replica that attends, have the producer send its callback target, " +
		"or set producers.NAME.target",
}

// noteRefused counts a call that is refused for good, and logs a line once a minute for each producer and reason:
// otherwise only the caller would know.
func (a *App) noteRefused(producer, reason, cause string) {
	unlogged, due := a.metrics.Refused(producer, reason, cause)
	if !due {
		return
	}
	a.logger.Warn("calls of a producer are refused; nothing of them is stored",
		"producer", producer, "reason", reason, "cause", cause, "remedy", refusalRemedies[reason], "calls", unlogged)
	a.events.Note(events.ProducerRefused, producer, reason+": "+cause)
}

// producerSplit is the reason for refused answers of a producer whose replicas have different marker stores. Such an
// answer is counted and shared like a refused call.
const producerSplit = "PRODUCER_SPLIT"

// noteSplit counts an answer of another marker store than the messages name, or a replica whose markers no other
// replica sees, and logs a line once a minute for each producer.
func (a *App) noteSplit(producer, store, other string) {
	cause := fmt.Sprintf("the marker store %s, and not %s", cmp.Or(other, "without an identity"), store)
	unlogged, due := a.metrics.Refused(producer, producerSplit, cause)
	if !due {
		return
	}
	a.logger.Warn("a producer's replicas have different marker stores; messages wait for the store that they name; "+
		"look for a process that runs under the producer's name with another database",
		"producer", producer, "marker_store", store, "other_store", other, "calls", unlogged)
	a.events.Note(events.ProducerSplit, producer, cause)
}

const (
	// refusalsSchedule is how often refusals are shared with the other coordinators.
	refusalsSchedule = "@every 2s"
	// maxShared and maxSharedCause bound the data that a coordinator shares: refusals, and bytes of the cause of each.
	maxShared, maxSharedCause = 20, 300
)

// sharedRefusal is a refusal in the form for other coordinators. Times are ages, because clocks differ.
type sharedRefusal struct {
	Producer string        `json:"producer"`
	Reason   string        `json:"reason"`
	Cause    string        `json:"cause"`
	Count    int64         `json:"count"`
	FirstAgo time.Duration `json:"first_ago"`
	LastAgo  time.Duration `json:"last_ago"`
}

// watchRefusals shares this coordinator's refusals through Redis and reads the refusals of the others. Behind a load
// balancer each coordinator refuses a part of a producer's calls, and an operator may ask any coordinator.
func (a *App) watchRefusals(store *redisstore.Store) error {
	return a.repeat("refusals", refusalsSchedule, func(ctx context.Context) error { return a.shareRefusals(ctx, store) })
}

func (a *App) shareRefusals(ctx context.Context, store *redisstore.Store) error {
	now := time.Now()
	shared, err := store.ShareRefusals(ctx, toShare(lately(a.metrics.Refusals(), now), now))
	if err != nil {
		return err
	}
	var others []peerstats.Refusal
	for _, of := range shared {
		others = append(others, fromShared(of, now)...)
	}
	a.otherRefusals.Store(&others)
	return nil
}

// lately returns the recent refusals, the latest first.
func lately(all []peerstats.Refusal, now time.Time) []peerstats.Refusal {
	all = slices.DeleteFunc(all, func(r peerstats.Refusal) bool { return now.Sub(r.LastAt) > refusedLately })
	slices.SortStableFunc(all, func(a, b peerstats.Refusal) int { return b.LastAt.Compare(a.LastAt) })
	return all
}

// toShare is the text for other coordinators, empty where nothing was refused.
func toShare(refusals []peerstats.Refusal, now time.Time) string {
	if len(refusals) == 0 {
		return ""
	}
	shared := make([]sharedRefusal, min(len(refusals), maxShared))
	for i := range shared {
		r := refusals[i]
		cause := strings.ToValidUTF8(r.Cause[:min(len(r.Cause), maxSharedCause)], "")
		shared[i] = sharedRefusal{r.Producer, r.Reason, cause, r.Count, now.Sub(r.FirstAt), now.Sub(r.LastAt)}
	}
	text, _ := json.Marshal(shared) // texts and numbers cannot fail
	return string(text)
}

// fromShared reads the text of another coordinator. An unreadable text of a later version is skipped.
func fromShared(of redisstore.Shared, now time.Time) (refusals []peerstats.Refusal) {
	var shared []sharedRefusal
	if json.Unmarshal([]byte(of.Text), &shared) != nil {
		return nil
	}
	for _, r := range shared {
		refusals = append(refusals, peerstats.Refusal{
			Producer: r.Producer, Reason: r.Reason, Cause: r.Cause, Count: r.Count,
			FirstAt: now.Add(-of.Ago - r.FirstAgo), LastAt: now.Add(-of.Ago - r.LastAgo),
		})
	}
	return refusals
}

// allRefusals merges the refusals of all coordinators, by producer and reason.
func (a *App) allRefusals() []peerstats.Refusal {
	all := a.metrics.Refusals()
	if others := a.otherRefusals.Load(); others != nil {
		all = append(all, *others...)
	}
	var merged []peerstats.Refusal
	for _, r := range all {
		i := slices.IndexFunc(merged, func(m peerstats.Refusal) bool {
			return m.Producer == r.Producer && m.Reason == r.Reason
		})
		if i < 0 {
			merged = append(merged, r)
			continue
		}
		m := &merged[i]
		m.Count += r.Count
		if r.FirstAt.Before(m.FirstAt) {
			m.FirstAt = r.FirstAt
		}
		if r.LastAt.After(m.LastAt) {
			m.LastAt, m.Cause = r.LastAt, r.Cause
		}
	}
	return merged
}
