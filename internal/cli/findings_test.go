package cli_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/servers"
)

func TestStatsAndTopShowFindings(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	run(nil, "stats", "--output=json", "--server="+c.addr).want(t, 0, `"findings": []`, "")
	c.findings = []*adminv1.Finding{{
		Name: "producer-refused", Severity: adminv1.Severity_SEVERITY_TROUBLE,
		What: "producer orders: \x1b[2J", Why: "why", Remedy: "do",
	}, {
		Name: "messages-stuck", Severity: adminv1.Severity_SEVERITY_WARNING, What: "9 wait", Remedy: "look",
		Subject: "orders", Follows: "producer-refused",
	}}
	run(nil, "stats", "--server="+c.addr).want(t, 0,
		"\n\nTROUBLE   producer-refused   producer orders: \\x1b[2J\n          do:                do\n"+
			"WARNING   messages-stuck     9 wait\n          do:                nothing; it follows producer-refused", "")
	var document struct {
		Findings []struct{ Name, Severity, What, Why, Remedy, Follows string }
	}
	said := run(nil, "stats", "--output=json", "--server="+c.addr)
	if err := json.Unmarshal([]byte(said.out), &document); err != nil || len(document.Findings) != 2 ||
		document.Findings[0].Severity != "trouble" || document.Findings[0].Remedy != "do" ||
		document.Findings[1].Follows != "producer-refused" {
		t.Errorf("%v: %s", err, said.out)
	}
	out, stop := watch(t, "top", "--every=100ms", "--server="+c.addr)
	servers.Eventually(t, 20*time.Second, "top shows the finding", func() bool {
		return strings.Contains(out.String(), "TO LOOK AT\nTROUBLE   producer-refused   producer orders: ")
	})
	stop()
}
