package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

const areaProducers = "producers"

// examineProducers asks every producer whose target is known about an id that it has never heard of.
func examineProducers(ctx context.Context, e Examination) []Finding {
	targets := e.Settings.Targets()
	maps.Copy(targets, e.Producers)
	if len(targets) == 0 {
		return []Finding{{Area: areaProducers, What: "no callback target is known; name one with --producer NAME=HOST:PORT"}}
	}
	client, err := callback.New(callback.Config{
		Allow: e.Settings.Callbacks.Allow, Networks: e.Settings.Callbacks.Networks, Targets: e.Settings.Targets(),
		Timeout: e.Settings.Confirm.Timeout, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return []Finding{{
			areaProducers, Trouble, err.Error(), "the coordinator does not start", "correct the target, or allow it in callbacks.allow",
		}}
	}
	defer client.Close()
	var found []Finding
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		found = append(found, examineProducer(ctx, client, name, targets[name])...)
	}
	return found
}

func examineProducer(ctx context.Context, client *callback.Client, name, address string) []Finding {
	area := "producer " + name
	trouble := func(what, why, remedy string) []Finding { return []Finding{{area, Trouble, what, why, remedy}} }
	resolved, err := client.Resolve(name, address)
	if err != nil {
		return trouble(err.Error(), "its half messages are refused", "write host:port, and allow it in callbacks.allow")
	}
	to := halfmsg.Target{Producer: name, Address: resolved}
	id := "msghandler-doctor-" + rand.Text()
	verdicts, err := client.Confirm(ctx, to, []string{id}, false)
	if err != nil {
		return trouble(err.Error(), "its messages wait for as long as nobody answers",
			"start it, or correct its callback target; it must serve msghandler.v1.ProducerService")
	}
	switch verdicts[id] {
	case halfmsg.VerdictCommitted:
		return trouble("says COMMITTED of an id that cannot exist ("+id+")", "it would have messages published whose business never happened",
			"answer COMMITTED only when the marker is there")
	case halfmsg.VerdictRolledBack:
		return trouble("says ROLLED_BACK of an id that it does not know, though the question was not final",
			"a business that is still running would lose its message", "answer UNKNOWN, and ROLLED_BACK only when it can never commit")
	}
	if err := client.DeleteBusiness(ctx, to, []string{id}); err != nil {
		return []Finding{{
			area, Warning, err.Error(), "its markers are never deleted, and pile up",
			"DeleteBusiness must succeed for an id that is gone already",
		}}
	}
	return []Finding{{Area: area, What: fmt.Sprintf("answers at %s, and UNKNOWN of an id that cannot exist", resolved)}}
}
