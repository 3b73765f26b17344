package guard

import (
	"strings"
	"testing"

	"github.com/msghandler/msghandler/test/threats"
)

// budgetNames are the budgets as SECURITY.md calls them.
var budgetNames = map[resource]string{
	unfinishedCalls: "Calls without their whole request", unfinishedProbes: "probes of the health",
	requestBytes: "announced bytes", largeBytes: "bytes of large requests", openStreams: "streams that need no identity",
}

func TestPolicyNamesEachBudget(t *testing.T) {
	t.Parallel()
	defence := threats.Defence(t, "exhaust memory or connections before a login")
	for r := range resources {
		if name := budgetNames[r]; name == "" || !strings.Contains(defence, name) {
			t.Errorf("SECURITY.md does not name the budget %d (%q)", r, name)
		}
	}
}
