package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// ListAudit pages through audited by the index in the token.
func (c *coordinator) ListAudit(
	_ context.Context, r *adminv1.ListAuditRequest,
) (*adminv1.ListAuditResponse, error) {
	err := c.note("audit by=%s action=%s result=%s age=%v size=%d", r.GetActorContains(), r.GetActionContains(),
		operate.Word(r.GetResult()),
		r.GetMaxAge().AsDuration(), r.GetPageSize())
	c.mu.Lock()
	defer c.mu.Unlock()
	var from int
	_, _ = fmt.Sscan(r.GetPageToken(), &from)
	to := min(from+int(r.GetPageSize()), len(c.audited))
	page := &adminv1.ListAuditResponse{Records: c.audited[from:to]}
	if to < len(c.audited) {
		page.NextPageToken = fmt.Sprint(to)
	}
	return page, err
}

func auditedCoordinator(t *testing.T) *coordinator {
	t.Helper()
	c := startCoordinator(t)
	at := timestamppb.New(time.Date(2026, 11, 26, 12, 0, 0, 0, time.Local))
	c.audited = []*adminv1.AuditRecord{
		{
			Id: "r3-0", Time: at, LastTime: at, Address: "10.0.0.9", Count: 999,
			Channel: adminv1.AuditChannel_AUDIT_CHANNEL_GRPC, IdentityKind: adminv1.IdentityKind_IDENTITY_KIND_ANONYMOUS,
			Method: "/msghandler.admin.v1.AdminService/DiscardMessages",
			Result: adminv1.AuditResult_AUDIT_RESULT_REFUSED, Refusal: adminv1.RefusalKind_REFUSAL_KIND_IDENTITY,
			Cause: "show a client certificate\x1b[2J",
		},
		{
			Id: "c2-0", Time: at, Actor: "jwt:anna", Address: "10.1.2.3:5",
			Channel:      adminv1.AuditChannel_AUDIT_CHANNEL_CONSOLE,
			IdentityKind: adminv1.IdentityKind_IDENTITY_KIND_JWT, Action: adminv1.AuditAction_AUDIT_ACTION_DISCARD,
			Result: adminv1.AuditResult_AUDIT_RESULT_DONE, Names: []string{"orders/1", "orders/2"}, Filter: "state=dead",
			Count: 2, Reason: "test orders",
		},
		{
			Id: "c1-0", Time: at, Channel: adminv1.AuditChannel_AUDIT_CHANNEL_CONFIG,
			Action: adminv1.AuditAction_AUDIT_ACTION_RELOAD,
			Result: adminv1.AuditResult_AUDIT_RESULT_FAILED, Cause: "no file",
		},
	}
	return c
}

func TestAuditPrintsRecords(t *testing.T) {
	t.Parallel()
	c := auditedCoordinator(t)
	server := "--server=" + c.addr
	want := `TIME (UTC) BY FROM ACTION RESULT CONCERNS WHY
2026-11-26 12:00:00 anonymous 10.0.0.9 grpc DiscardMessages refused 999 calls show a client certificate\x1b[2J
2026-11-26 12:00:00 jwt:anna 10.1.2.3:5 console discard done orders/1 and 1 more state=dead test orders
2026-11-26 12:00:00 - config reload failed - no file`
	got := run(nil, "audit", server).out
	if !slices.Equal(strings.Fields(got), strings.Fields(want)) {
		t.Errorf("printed\n%s", got)
	}
	c.asked()
	run(nil, "audit", "--since=1h", "--by=anna", "--action=disc", "--refused", server).want(t, 0, "jwt:anna", "")
	run(nil, "audit", "--failed", "--limit=2", server).want(t, 0, "orders/1", "this is the end of --limit=2")
	if asked := c.asked(); asked != "audit by=anna action=disc result=refused age=1h0m0s size=100; "+
		"audit by= action= result=failed age=0s size=2" {
		t.Errorf("asked %s", asked)
	}
	var document struct {
		Records []map[string]any
		More    bool
	}
	must.Succeed(t, json.Unmarshal([]byte(run(nil, "audit", "--output=json", "--limit=2", server).out), &document))
	if len(document.Records) != 2 || !document.More || document.Records[1]["reason"] != "test orders" {
		t.Errorf("the document is %v", document)
	}
	c.audited = nil
	run(nil, "audit", server).want(t, 0, "no records\n", "")
}

// A follower prints each record once, in the order in which they came.
func TestAuditFollows(t *testing.T) {
	t.Parallel()
	c := auditedCoordinator(t)
	out, stop := watch(t, "audit", "--server", c.addr, "-f", "--output=json", "--limit=2")
	servers.Eventually(t, 10*time.Second, "the newest are printed", func() bool {
		return strings.Contains(out.String(), "r3-0")
	})
	c.mu.Lock()
	for i := 4; i < 8; i++ {
		c.audited = append([]*adminv1.AuditRecord{{
			Id: fmt.Sprintf("c%d-0", i), Action: adminv1.AuditAction_AUDIT_ACTION_RETRY,
		}}, c.audited...)
	}
	c.mu.Unlock()
	servers.Eventually(t, 10*time.Second, "the new ones are printed", func() bool {
		return strings.Contains(out.String(), "c7-0")
	})
	if code := stop(); code != 0 {
		t.Errorf("an interrupt ends the command with %d", code)
	}
	var ids []string
	for line := range strings.Lines(out.String()) {
		var r struct{ ID string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		ids = append(ids, r.ID)
	}
	if got := strings.Join(ids, " "); got != "c2-0 r3-0 c4-0 c5-0 c6-0 c7-0" {
		t.Errorf("printed %s", got)
	}
}
