package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/test/servers"
)

// Faults of one master of a Redis Cluster. The Redis of the world holds the producers' markers alone.
var clusterRows = []row{
	{
		name: "F13_frozen_master", world: clustered, copies: true, leavesMarkers: true, lasting: true,
		fault: silenceMaster((*servers.RedisServer).Freeze, (*servers.RedisServer).Thaw),
	},
	{
		name: "F13_killed_master", world: clustered, copies: true, leavesMarkers: true, lasting: true,
		fault: silenceMaster((*servers.RedisServer).Kill, (*servers.RedisServer).Start),
	},
}

var clustered = options{
	before: func(w *world) {
		w.masters = servers.RedisMasters(w.t, "--appendfsync", "always", "--cluster-require-full-coverage", "no")
	},
	url: func(w *world) string { return "redis://" + w.masters[0].Addr + "?cluster=true" },
}

const (
	// beforeCircuit is shorter than the circuit of a silent master takes to open.
	beforeCircuit = 2 * time.Second
	// silentFor is how long the master is silent at least.
	silentFor = 12 * time.Second
	// repeatedIDs are spread over the shards: about a third of them have the silent master.
	repeatedIDs = 24
)

// silenceMaster takes the last of three masters away. Calls for the others go on from the first moment on, also calls
// that share their time with a call for the silent one.
func silenceMaster(begin, end func(*servers.RedisServer)) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, _ *rand.Rand) {
		master := w.masters[2]
		pause(ctx, time.Second)
		repeating, stop := context.WithCancel(w.t.Context())
		defer stop()
		answered := w.repeat(repeating)
		_, usual := answered.during(beforeCircuit)
		begin(master)
		w.ledger.Fault("silent: master " + master.Addr)
		silent := time.Now()
		counts, _ := answered.during(beforeCircuit)
		served, least := 0, usual/repeatedIDs/10
		for _, n := range counts {
			if n > least+1 { // one call may have been answered before
				served++
			}
		}
		w.t.Logf("%d answers in %v before; in the first %v of silence: %v", usual, beforeCircuit, beforeCircuit, counts)
		if served < repeatedIDs/3 || served == repeatedIDs {
			w.t.Errorf("calls for %d of %d ids went on while a master was silent", served, repeatedIDs)
		}
		for _, c := range w.coordinators {
			servers.Eventually(w.t, patience, "the silent master is reported", func() bool {
				_, page := c.page("/")
				return strings.Contains(page, "Redis master "+master.Addr+" does not answer since")
			})
			if status, text := c.page("/readyz"); status != http.StatusOK {
				w.t.Errorf("not ready while two of three masters answer: %s", text)
			}
		}
		wait(time.Until(silent.Add(silentFor)))
		_, later := answered.during(beforeCircuit)
		w.t.Logf("with the circuit open: %d answers in %v", later, beforeCircuit)
		end(master)
		w.ledger.Fault("back: master " + master.Addr)
		w.allReady()
		before := answered.counts()
		servers.Eventually(w.t, patience, "all ids are answered again", func() bool {
			now := answered.counts()
			for id := range now {
				if now[id] == before[id] {
					return false
				}
			}
			return true
		})
	}
}

// answersByID counts the answers to calls that are repeated, by id.
type answersByID [repeatedIDs]atomic.Int64

func (a *answersByID) counts() (counts [repeatedIDs]int64) {
	for id := range a {
		counts[id] = a[id].Load()
	}
	return counts
}

// during counts the answers of some time from now on, by id and altogether.
func (a *answersByID) during(d time.Duration) (counts [repeatedIDs]int64, total int64) {
	before := a.counts()
	wait(d)
	for id, n := range a.counts() {
		counts[id] = n - before[id]
		total += counts[id]
	}
	return counts, total
}

// repeat sends the same half messages again and again, each by a client of its own, and counts the answers.
func (w *world) repeat(ctx context.Context) *answersByID {
	answered := new(answersByID)
	var clients sync.WaitGroup
	for n := range repeatedIDs {
		d := w.coordinators[n%len(w.coordinators)].direct
		clients.Go(func() {
			for ctx.Err() == nil {
				if d.send(w.t.Context(), fmt.Sprint("repeated-", n)) == codes.OK {
					answered[n].Add(1)
				}
				pause(ctx, 5*time.Millisecond)
			}
		})
	}
	w.t.Cleanup(clients.Wait)
	return answered
}
