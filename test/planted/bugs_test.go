// Package planted runs verify-producer against producers with planted bugs, in Go and in Python.
package planted

import "strings"

// The ids that each planted producer knows.
const (
	committedID  = "1001"
	rolledBackID = "1002"
	deletedID    = "0999"
	runningID    = "1003"
)

// The needs of verify-producer beside the address, in the words of docs/reference/findings.md.
const (
	nothing      = ""
	committed    = "--committed"
	rolledBack   = "--rolled-back"
	deleted      = "--deleted"
	running      = "--running"
	databaseAway = "--database-away"
	replicas     = "two replicas"
)

// bug is a mistake of a producer, with the finding that names it.
type bug struct {
	name, finding string
	// needs says how verify-producer finds the bug.
	needs string
}

// bugs are the planted bugs. The sending side of a producer is not asked, so its bugs are not found: finding is empty.
var bugs = []bug{
	{"no-row-is-rolled-back", "producer-hasty", nothing},
	{"commits-unknown", "producer-commits-unknown", nothing},
	{"unknown-is-an-error", "producer-fails", nothing},
	{"final-without-tombstone", "producer-wavers", nothing},
	{"final-only-once", "producer-wavers", nothing},
	{"tombstone-stays-locked", "producer-wavers", nothing},
	{"lagging-replica", "producer-wavers", nothing},
	{"ignores-final", "producer-undecided", nothing},
	{"answers-for-others", "producer-answers-others", nothing},
	{"only-the-first-id", "producer-leaves-out", nothing},
	{"verdicts-by-place", "producer-mixes-up", nothing},
	{"several-verdicts", "producer-confuses", nothing},
	{"lowers-ids", "producer-confuses-ids", nothing},
	{"cuts-ids", "producer-confuses-ids", nothing},
	{"full-batch-fails", "producer-fails", nothing},
	{"nothing-panics", "producer-fails", nothing},
	{"query-for-each-id", "producer-slow", nothing},
	{"one-question-at-a-time", "producer-serial", nothing},
	{"deletes-hard", "producer-forgets", nothing},
	{"deleting-unknown-fails", "producer-keeps-markers", nothing},
	{"lets-anyone-in", "producer-unguarded", nothing},
	{"marker-read-once", "producer-denies", committed},
	{"committed-while-running", "producer-premature", running},
	{"deleted-is-rolled-back", "producer-forgets", deleted},
	{"tombstone-in-memory", "producer-forgets", rolledBack},
	{"replica-with-memory", "producer-disagrees", replicas},
	{"database-away-is-rolled-back", "producer-guesses", databaseAway},
	{"database-away-is-unknown", "producer-blames", databaseAway},
	{"marker-overwrites-tombstone", "", nothing},
	{"business-before-half-message", "", nothing},
}

// withoutDatabase says whether the database of the planted producer is away.
func (b bug) withoutDatabase() bool { return strings.HasPrefix(b.name, "database-away") }
