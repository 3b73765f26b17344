package redis

import (
	"context"
	"errors"
	"strconv"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Replay implements halfmsg.Historian.
func (s *Store) Replay(ctx context.Context, replays []halfmsg.Replay, how halfmsg.ReplayHow) []halfmsg.Result {
	results := make([]halfmsg.Result, len(replays))
	found := make([]halfmsg.Finished, len(replays))
	records := make([][]byte, len(replays))
	e := encoder{packs: s.layout.version >= packedBodies}
	for i, r := range replays {
		found[i], results[i].Err = s.GetFinished(ctx, r.Name, r.Entry)
		if results[i].Err == nil && !found[i].Replayable() {
			results[i] = halfmsg.Result{State: endState(found[i].Ended), Err: errors.Join(halfmsg.ErrIllegal, found[i].Damaged)}
		}
		if results[i].Err == nil {
			records[i], results[i].Err = e.encode(&found[i].Message, found[i].Fingerprint)
		}
	}
	places := s.places(len(replays), func(i int) halfmsg.Name { return replays[i].Becomes() })
	places, _ = split(places, func(at place) bool { return results[at.index].Err == nil })
	s.replay(ctx, places, results, replaying{
		how: how, names: replays, found: found, records: records,
	})
	return results
}

// endState is the state of a message that ended.
func endState(ended halfmsg.Ending) halfmsg.State {
	state, err := halfmsg.ParseState(string(ended))
	if err != nil {
		return halfmsg.None
	}
	return state
}

// replaying is a batch of replays with what the archive has of them.
type replaying struct {
	how     halfmsg.ReplayHow
	names   []halfmsg.Replay
	found   []halfmsg.Finished
	records [][]byte
}

// replay calls replay.lua. A copy under the same id may be a repeat for consumers, so it never has attempt 1.
func (s *Store) replay(ctx context.Context, places []place, results []halfmsg.Result, r replaying) {
	p := plan{
		store: s, room: 5, head: always(r.how.By, shorten(r.how.Reason), strconv.FormatBool(r.how.DryRun)),
		each: func(args []any, i int) []any {
			copies := 0
			if r.names[i].Suffix == "" {
				copies = max(1, r.found[i].Copies)
			}
			found := &r.found[i]
			return append(args, r.names[i].Becomes().ID, found.Fingerprint, found.At.UnixMilli(), copies, r.records[i])
		},
		weight: func(i int) int { return len(r.records[i]) },
	}
	calls := p.calls(places)
	run(ctx, s.intake, s.scripts.replay, calls)
	for _, c := range calls {
		for n, i := range c.items {
			results[i] = s.result(c, n, r.names[i].Becomes())
		}
	}
}
