package cli_test

import (
	"strings"
	"testing"
)

// A coordinator of a version before filters and dry runs ignores both, as protobuf ignores unknown fields. It would
// change all messages of the state, also where it was only to count.
func TestOlderCoordinatorGetsNoFilters(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	c.old = true
	env := []string{"MSGHANDLER_SERVER=" + c.addr}
	for _, typed := range []string{
		"discard --state=dead --dry-run",
		"discard --state=dead --exchange=shop --yes",
		"discard --state=dead --broker=events --yes",
		"discard orders/1001 -n",
		"retry --state=dead --error=NO_ROUTE --yes",
		"retry --state=dead --older-than=1h --yes",
		"list --state=dead --error=NO_ROUTE --names",
	} {
		run(env, strings.Fields(typed)...).want(t, 1, "", "older version")
		if asked := c.asked(); asked != `list STATE_PENDING  1 from "" older -1ns` {
			t.Errorf("%s: asked %s", typed, asked)
		}
	}
	run(env, "discard", "orders/1001").want(t, 0, "discarded 1\n", "")
	run(env, "list", "--state=dead", "--producer=orders", "--names").want(t, 0, "orders/1001", "")
}
