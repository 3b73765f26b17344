package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Replay implements halfmsg.Historian.
func (s *Store) Replay(ctx context.Context, replays []halfmsg.Replay, how halfmsg.ReplayHow) []halfmsg.Result {
	results := make([]halfmsg.Result, len(replays))
	records := make([][]byte, len(replays))
	e := encoder{}
	found := s.findEntries(ctx, replays, results)
	for i := range replays {
		if results[i].Err == nil && !found[i].Replayable() {
			results[i] = halfmsg.Result{State: endState(found[i].Ended), Err: errors.Join(halfmsg.ErrIllegal, found[i].Damaged)}
		}
		if broker := found[i].Message.Broker; results[i].Err == nil && !s.knows(broker) {
			results[i].Err = fmt.Errorf("%w: %s", halfmsg.ErrNoBroker, broker) // the copy would wait for ever
		}
		if results[i].Err == nil && how.MayPublish != nil {
			results[i].Err = how.MayPublish(&found[i].Message)
		}
		if results[i].Err == nil {
			found[i].Replayed = true
			records[i], results[i].Err = e.encode(&found[i].Message, found[i].Fingerprint)
		}
	}
	name := func(i int) halfmsg.Name { return replays[i].Becomes() }
	key := func(i int) string { return found[i].Message.OrderingKey }
	places := s.keyedPlaces(len(replays), name, key)
	places, _ = split(places, func(at place) bool { return results[at.index].Err == nil })
	if !how.DryRun {
		places = s.writePointers(ctx, places, name, key, results)
	}
	s.replay(ctx, places, results, replayBatch{how: how, replays: replays, found: found, records: records})
	for i := range replays {
		assertStored(halfmsg.EventReplay, replays[i].Becomes(), results[i])
	}
	return results
}

// knows says whether the configuration has a broker.
func (s *Store) knows(broker string) bool {
	return broker == "" || slices.Contains(s.config.Brokers, broker)
}

// findEntries reads the entries to replay, and puts errors into the results. The archive is searched once for all
// messages that are named without an entry and have no receipt any more: a search for each would take minutes.
func (s *Store) findEntries(
	ctx context.Context, replays []halfmsg.Replay, results []halfmsg.Result,
) []halfmsg.Finished {
	found := make([]halfmsg.Finished, len(replays))
	var searched []halfmsg.Name
	var missing []int
	for i, r := range replays {
		if r.Entry != "" {
			found[i], results[i].Err = s.GetFinished(ctx, r.Name, r.Entry)
			continue
		}
		found[i], results[i].Err = s.ofReceipt(ctx, r.Name)
		if isNotFound(results[i].Err) {
			searched, missing = append(searched, r.Name), append(missing, i)
		}
	}
	newest, err := s.newestEntries(ctx, searched)
	for n, i := range missing {
		name := searched[n]
		switch {
		case err != nil:
			results[i].Err = err
		case newest[name] != "":
			found[i], results[i].Err = s.GetFinished(ctx, name, newest[name])
		}
	}
	return found
}

// endState is the state of a message that ended.
func endState(ended halfmsg.Ending) halfmsg.State {
	state, err := halfmsg.ParseState(string(ended))
	if err != nil {
		return halfmsg.None
	}
	return state
}

// replayBatch is a batch of replays with the entries of the archive and the records to store.
type replayBatch struct {
	how     halfmsg.ReplayHow
	replays []halfmsg.Replay
	found   []halfmsg.Finished
	records [][]byte
}

// replay calls replay.lua. A copy under the same id may be a repeat for consumers, so it never has attempt 1.
func (s *Store) replay(ctx context.Context, places []place, results []halfmsg.Result, r replayBatch) {
	p := plan{
		store: s, room: 5, head: always(r.how.By, shorten(r.how.Reason), strconv.FormatBool(r.how.DryRun)),
		each: func(args []any, i int) []any {
			copies := 0
			if r.replays[i].Suffix == "" {
				copies = max(1, r.found[i].Copies)
			}
			found := &r.found[i]
			return append(args, r.replays[i].Becomes().ID, found.Fingerprint, found.At.UnixMilli(), copies, r.records[i])
		},
		weight: func(i int) int { return len(r.records[i]) },
	}
	calls := p.calls(places)
	run(ctx, s.intake, s.scripts.replay, calls)
	for _, c := range calls {
		for n, i := range c.items {
			results[i] = s.result(c, n, r.replays[i].Becomes())
		}
	}
}
