package simulation

import (
	"flag"
	"testing"

	"github.com/msghandler/msghandler/test/checks"
)

var complete = flag.Bool("complete", false, "fail when the runs miss a member of the coverage, but for exceptions")

// notCovered are the members of the coverage that no world reaches, each with its reason.
var notCovered = map[string]string{
	"reply create REPAIRED":      "only foreign hands leave an index entry without its record",
	"reply claim list of 2":      "only foreign hands leave an index entry without its record",
	"reply claim list of 3":      "only foreign hands leave keys of another type",
	"reply create OVER":          "the world sets no limits.unfinished",
	"reply create KEYHELD":       "no message of the world has an ordering key",
	"reply move WAITS":           "no message of the world has an ordering key",
	"reply replay *":             "nobody replays from the archive in the world",
	"move none replay sendable":  "nobody replays from the archive in the world",
	"move abandoned retry *":     "no operator acts in the world",
	"move dead retry *":          "no operator acts in the world",
	"move pending retry *":       "no operator acts in the world",
	"move sendable retry *":      "no operator acts in the world",
	"move acknowledged retry *":  "no operator acts in the world",
	"move pending discard *":     "no operator acts in the world",
	"move abandoned discard *":   "no operator acts in the world",
	"move dead discard *":        "no operator acts in the world",
	"move pending timed_out *":   "the world sets no confirm.give_up_after",
	"sometimes outcomes of one*": "the world has one shard",
}

// reportCoverage tells which members the runs have reached, and names the missing ones.
func reportCoverage(t *testing.T, covered *checks.Coverage) {
	t.Helper()
	var faults []string
	for _, f := range allFaults {
		faults = append(faults, f.name)
	}
	members, err := checks.Members(faults)
	if err != nil {
		t.Fatal(err)
	}
	missing, wrong := covered.Missing(members, notCovered)
	t.Logf("%d of %d members are covered or excepted; missing: %q; reached exceptions: %q", len(members)-len(missing),
		len(members), missing, wrong)
	if *complete && len(missing)+len(wrong) > 0 {
		t.Errorf("the runs miss %d members, and %d exceptions are wrong", len(missing), len(wrong))
	}
}
