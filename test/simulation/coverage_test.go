package simulation

import (
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/msghandler/msghandler/test/checks"
)

var coveredFlag = flag.String("covered", "", "the file with the coverage of many runs that TestCovered judges, in JSON")

// notCovered are the members of the coverage that no world reaches, each with its reason.
var notCovered = map[string]string{
	"reply claim list of 2":        "only foreign hands leave an index entry without its record",
	"reply claim list of 3":        "only foreign hands leave keys of another type",
	"reply create KEYHELD":         "no chain of the world reaches limits.held_per_key",
	"move pending released *":      "coordinators stop when everything is final, or are killed",
	"move acknowledged released *": "coordinators stop when everything is final, or are killed",
}

// TestCovered judges the coverage of all runs of make simulate.
func TestCovered(t *testing.T) {
	if *coveredFlag == "" {
		return
	}
	text, err := os.ReadFile(*coveredFlag)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	if err := json.Unmarshal(text, &counts); err != nil {
		t.Fatal(err)
	}
	covered := checks.NewCoverage()
	covered.Add(counts)
	reportCoverage(t, covered, true)
}

// reportCoverage tells which members the runs have reached, and names the missing ones. complete has these fail.
func reportCoverage(t *testing.T, covered *checks.Coverage, complete bool) {
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
	t.Logf("%d of %d members are covered or excepted", len(members)-len(missing), len(members))
	if !complete {
		return
	}
	for _, member := range missing {
		t.Errorf("no run reaches: %s", member)
	}
	for _, exception := range wrong {
		t.Errorf("a wrong exception: %s", exception)
	}
}
