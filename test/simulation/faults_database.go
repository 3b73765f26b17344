package simulation

import (
	"context"
	"time"

	"github.com/msghandler/msghandler/test/simulation/modeldb"
)

// databaseFaults are faults of producers' and consumers' databases, and of the connections with them.
var databaseFaults = []fault{
	{name: "database cuts", chance: 50, start: cutDatabases},
	{name: "slow databases", chance: 30, start: slowDatabases},
	{name: "database refusals", chance: 40, start: refuseInDatabases},
	{name: "databases away", chance: 30, start: stopDatabases},
	{name: "database failover", chance: 20, start: failOverWithAll},
	{name: "lagging failover", chance: 15, excuse: excuse{sqlMarkers: true}, start: failOverWithLoss},
	{
		name: "database replaced", chance: 15, start: takeAnotherDatabase,
		excuse: excuse{sqlMarkers: true, elsewhere: true},
	},
	{name: "database clocks", chance: 15, start: stepDatabaseClocks},
	{name: "marker refusals", chance: 25, start: refuseMarkers, excuse: excuse{markers: true}},
}

// trouble gives calls trouble until healing begins: so many of a thousand.
func (w *World) trouble(ctx context.Context, d draws, most int, how func(call modeldb.Call) modeldb.Trouble) {
	often := 1 + d.intn("often", most)
	w.databases.mu.Lock()
	w.databases.troubles = append(w.databases.troubles, func(call modeldb.Call) modeldb.Trouble {
		if ctx.Err() != nil || d.intn(call.Server+" has it", 1000) >= often {
			return modeldb.Trouble{}
		}
		trouble := how(call)
		if !d.strikes(call.Server) {
			return modeldb.Trouble{}
		}
		return trouble
	})
	w.databases.mu.Unlock()
}

// cutDatabases ends connections before a call, after it, or has the call arrive late.
func cutDatabases(ctx context.Context, w *World, d draws) {
	w.trouble(ctx, d, 100, func(call modeldb.Call) modeldb.Trouble {
		t := modeldb.Trouble{Cut: modeldb.CutBefore + modeldb.Cut(d.intn("how", 3))}
		if d.intn("lingers", 2) == 1 {
			t.Lingers = d.within("how long", 0, 30*time.Second)
		}
		return t
	})
}

// slowDatabases delays calls and answers.
func slowDatabases(ctx context.Context, w *World, d draws) {
	w.trouble(ctx, d, 200, func(modeldb.Call) modeldb.Trouble {
		return modeldb.Trouble{Delay: d.within("call", 0, 5*time.Second), AnswerDelay: d.within("answer", 0, 5*time.Second)}
	})
}

// refuseInDatabases has servers refuse calls for reasons that pass.
func refuseInDatabases(ctx context.Context, w *World, d draws) {
	states := []string{"40001", "40P01", "57014", "57P01", "53300"}
	w.trouble(ctx, d, 100, func(modeldb.Call) modeldb.Trouble {
		return modeldb.Trouble{State: states[d.intn("state", len(states))]}
	})
}

// refuseMarkers has the markers in memory refuse calls for some seconds again and again.
func refuseMarkers(ctx context.Context, w *World, d draws) {
	w.repeat(ctx, d, func() {
		of := w.memories[d.intn("of", len(w.memories))]
		of.refuses.Store(true)
		_ = sleep(ctx, d.long("length", 100*time.Millisecond, 20*time.Second))
		of.refuses.Store(false)
	})
}

// eachDatabase does something to one database again and again, until healing begins.
func (w *World) eachDatabase(ctx context.Context, d draws, act func(of *sqlDatabase)) {
	w.repeat(ctx, d, func() {
		of := w.databases.all[d.intn("database", len(w.databases.all))]
		if of.acting.TryLock() { // one act at a time: a server that was replaced never starts again
			defer of.acting.Unlock()
			act(of)
		}
	})
}

func stopDatabases(ctx context.Context, w *World, d draws) {
	w.eachDatabase(ctx, d, func(of *sqlDatabase) {
		w.Ledger.Fault(of.name + " stops")
		w.note("%s stops", of.name)
		server := of.primary()
		server.Stop()
		_ = sleep(ctx, d.long("absence", 0, time.Minute))
		server.Start()
	})
}

func failOverWithAll(ctx context.Context, w *World, d draws) { failOver(ctx, w, d, 0) }

func failOverWithLoss(ctx context.Context, w *World, d draws) {
	failOver(ctx, w, d, d.within("lag", 10*time.Millisecond, 2*time.Second))
}

// failOver has a replica take the place of its primary. With a lag the latest commits are lost, and the database of the
// consumer keeps its primary: no inbox could help.
func failOver(ctx context.Context, w *World, d draws, lag time.Duration) {
	w.eachDatabase(ctx, d, func(of *sqlDatabase) {
		if lag > 0 && of.effects {
			return
		}
		w.Ledger.Fault(of.name + " fails over")
		w.note("%s fails over with a lag of %v", of.name, lag)
		old := of.primary()
		replica := old.Replica(of.name, lag)
		if d.intn("goes on reading", 2) == 0 {
			old.Demote()
		} else {
			old.Stop()
		}
		w.lose(of, old, replica)
		replica.Promote()
		_ = sleep(ctx, d.long("absence", 0, 20*time.Second))
		of.moveTo(replica)
	})
}

// lose notes the messages whose commits the replica lacks.
func (w *World) lose(of *sqlDatabase, old, replica *modeldb.Server) {
	const all = "SELECT producer, id FROM orders"
	if of.effects {
		return
	}
	has := map[string]bool{}
	for _, row := range w.read(replica, all) {
		has[textOf(row[0])+"/"+textOf(row[1])] = true
	}
	w.databases.mu.Lock()
	defer w.databases.mu.Unlock()
	for _, row := range w.read(old, all) {
		if key := textOf(row[0]) + "/" + textOf(row[1]); !has[key] {
			w.databases.lost[key] = true
			w.note("the commit of %s is lost", key)
		}
	}
}

func (w *World) read(server *modeldb.Server, query string) [][]any {
	rows, err := server.Read(query)
	if err != nil {
		w.report("the model database does not answer %s: %v", query, err)
	}
	return rows
}

// takeAnotherDatabase has the processes of a producer find an empty database under the name of theirs for a while.
func takeAnotherDatabase(ctx context.Context, w *World, d draws) {
	w.eachDatabase(ctx, d, func(of *sqlDatabase) {
		if of.other == nil {
			return
		}
		w.Ledger.Fault(of.name + " is another one")
		w.note("%s is another one", of.name)
		other, err := of.other()
		if err != nil {
			w.report("%v", err)
			return
		}
		right := of.moveTo(other)
		right.Disconnect()
		_ = sleep(ctx, d.long("presence", time.Second, time.Minute))
		of.moveTo(right)
		other.Disconnect()
	})
}

// stepDatabaseClocks sets servers' clocks forward and back.
func stepDatabaseClocks(ctx context.Context, w *World, d draws) {
	w.eachDatabase(ctx, d, func(of *sqlDatabase) {
		by := d.within("step", -3*time.Minute, 3*time.Minute)
		w.note("the clock of %s steps by %v", of.name, by)
		of.primary().StepClock(by)
	})
}
