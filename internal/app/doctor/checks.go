package doctor

import (
	"context"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/callback"
)

const (
	// checkReach is the check that precedes all others: whether the producer answers at all.
	checkReach = "reach"
	// checkDatabaseAway is the only check while the producer's database is away.
	checkDatabaseAway = "database-away"
)

// Known are messages of a producer whose fate the caller of Verify knows.
type Known struct {
	// Running have a transaction that runs now, and has written its marker.
	Running []string
	// RolledBack have been rolled back.
	RolledBack []string
	// Deleted have committed, and the coordinator has had their markers deleted.
	Deleted []string
}

// check is one part of Verify.
type check struct {
	// name stays the same, for reports that compare runs.
	name string
	// ask reports problems, and says what is well. It says nothing, and reports nothing, where there is nothing to ask.
	ask func(context.Context, *report) (well string)
}

// checks are the parts of Verify in their order: final settles the id that the checks after it ask about.
func (e *Examination) checks(i *interview, client *callback.Client, committed []string) []check {
	if e.DatabaseAway {
		return []check{{checkDatabaseAway, i.databaseAway(client)}}
	}
	return []check{
		{"batch", i.batch},
		{"odd-questions", i.odd},
		{"another-name", i.anotherName},
		{"committed", i.known(committed)},
		{"running", i.running(e.Known.Running)},
		{"rolled-back", i.rolledBack(e.Known.RolledBack)},
		{"deleted", i.deleted(e.Known.Deleted)},
		{"final", i.final},
		{"similar-ids", i.similar},
		{"connections", i.connections(e)},
		{"concurrent", i.concurrent},
		{"deletions", i.deletions},
		{"kept", i.kept},
		{"strangers", e.stranger(i.to)},
	}
}

// of enters the check into its findings.
func of(check string, took time.Duration, found []Finding) []Finding {
	for n := range found {
		found[n].Check, found[n].Took = check, took
	}
	return found
}

// unreached are the findings after which Verify knows nothing of the contract.
var unreached = []string{
	"callbacks-credentials", "producer-forbidden", "producer-away", "producer-no-service", "producer-certificate",
	"producer-refuses", "producer-another", "coordinator-away", "coordinator-refuses",
}

// Unreached says whether findings of Verify say that the producer was not reached, or does not answer this caller, so
// that nothing is known of how it keeps the contract. In a later check such a finding is one of several.
func Unreached(found []Finding) bool {
	first := []string{checkReach, checkDatabaseAway}
	return slices.ContainsFunc(found, func(f Finding) bool {
		return f.Severity > Note && slices.Contains(first, f.Check) && slices.Contains(unreached, f.Name)
	})
}
