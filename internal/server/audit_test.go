package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	"github.com/msghandler/msghandler/internal/server/policy"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// recorded is a trail in memory.
type recorded struct {
	mu      sync.Mutex
	records []audit.Record
	asked   audit.Query
}

func (k *recorded) Record(ctx context.Context, r audit.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	origin := audit.OriginOf(ctx)
	r.By, r.Via, r.From = access.From(ctx).Name, origin.Via, origin.From
	k.records = append(k.records, r)
}

func (k *recorded) List(_ context.Context, q audit.Query) (audit.Page, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = q
	if q.Token == "bad" {
		return audit.Page{}, audit.ErrBadToken
	}
	return audit.Page{Records: k.records, Next: "1-1."}, nil
}

// take returns the records, in a line each, and forgets them.
func (k *recorded) take() (lines []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.records {
		lines = append(lines, fmt.Sprintf("%s %s %s %s %s/%s %v filter=%q reason=%q %s", r.By, r.Via, r.Action, r.Result,
			r.Refusal, r.Producer, r.Names, r.Filter, r.Reason, r.Cause)+strings.Join(r.Destinations, "; "))
	}
	k.records = nil
	return lines
}

// String has all records.
func (k *recorded) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return fmt.Sprintf("%+v", k.records)
}

func (k *recorded) keep(c *server.Config) { c.Audit = k }

// A refused call of any caller in any protocol is recorded, with the lacking right.
func TestRefusedCallsAreRecorded(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	trail := &recorded{}
	_, address := guarded(t, a, access.Rules{
		Admins: []string{"dns:*.ops.shop"}, CallersOf: map[string][]string{"orders": {"dns:orders.shop"}},
	}, trail.keep)
	for _, by := range waysWithTLS(t, a, address, "stock.shop") {
		via := " grpc "
		if !strings.Contains(by.name, "gRPC") {
			via = " http "
		}
		_ = by.call("/msghandler.admin.v1.AdminService/DiscardMessages", &emptypb.Empty{})
		_ = by.call("/msghandler.v1.MessageHandlerService/Submit", &msghandlerv1.SubmitRequest{Producer: "orders"})
		lines := trail.take()
		if len(lines) != 2 {
			t.Fatalf("%s: recorded %q", by.name, lines)
		}
		for i, parts := range [][]string{
			{
				"dns:stock.shop", via, "/msghandler.admin.v1.AdminService/DiscardMessages refused role/ ",
				"may not use DiscardMessages",
			},
			{"dns:stock.shop", via, "/msghandler.v1.MessageHandlerService/Submit refused producer/orders", "may not call as"},
		} {
			for _, part := range parts {
				if !strings.Contains(lines[i], part) {
					t.Errorf("%s: %q lacks %q", by.name, lines[i], part)
				}
			}
		}
	}
}

// A change names who, why and what: also the messages of which the outcome is unknown, and not those that stay as they
// are.
func TestChangesAreRecorded(t *testing.T) {
	t.Parallel()
	trail := &recorded{}
	h := open(t, trail.keep)
	h.store.put("orders", "1", halfmsg.Dead)
	h.store.put("orders", "2", halfmsg.Abandoned)
	both := []*adminv1.MessageName{{Producer: "orders", Id: "1"}, {Producer: "orders", Id: "gone"}}
	discard := func(r *adminv1.DiscardMessagesRequest) { _, _ = h.operators.DiscardMessages(t.Context(), r) }
	discard(&adminv1.DiscardMessagesRequest{Selection: &adminv1.MessageSelection{Names: both}, DryRun: true})
	discard(&adminv1.DiscardMessagesRequest{Selection: &adminv1.MessageSelection{Names: both[1:]}})
	if lines := trail.take(); len(lines) != 0 {
		t.Errorf("without a change %q are recorded", lines)
	}
	discard(&adminv1.DiscardMessagesRequest{Selection: &adminv1.MessageSelection{Names: both}, Reason: "test"})
	want := []string{` grpc discard done /orders [orders/1] filter="" reason="test" `}
	if lines := trail.take(); !slices.Equal(lines, want) {
		t.Errorf("recorded %q", lines)
	}
	discard(&adminv1.DiscardMessagesRequest{
		Selection: &adminv1.MessageSelection{Filter: &adminv1.MessageFilter{
			State:    msghandlerv1.State_STATE_ABANDONED,
			Producer: "orders", MinAge: durationpb.New(0),
		}},
		Reason: "test",
	})
	want = []string{` grpc discard done /orders [orders/2] filter="state=abandoned producer=\"orders\"" reason="test" `}
	if lines := trail.take(); !slices.Equal(lines, want) {
		t.Errorf("recorded %q", lines)
	}
	h.store.before = func(string) {
		h.store.mu.Lock()
		defer h.store.mu.Unlock()
		h.store.fail = halfmsg.ErrUncertain
	}
	discard(&adminv1.DiscardMessagesRequest{Selection: &adminv1.MessageSelection{Names: both[:1]}, Reason: "test"})
	want = []string{
		` grpc discard failed /orders [orders/1] filter="" reason="test" the outcome is unknown; repeat the call`,
	}
	if lines := trail.take(); !slices.Equal(lines, want) {
		t.Errorf("recorded %q", lines)
	}
}

// A replay names who, why and what, without the values of headers.
func TestReplaysAreRecorded(t *testing.T) {
	t.Parallel()
	trail := &recorded{}
	finished := halfmsg.Finished{Entry: "1-0", Ended: halfmsg.EndedDone, At: time.Unix(1e9, 0)}
	finished.Name, finished.Headers = halfmsg.Name{Producer: "orders", ID: "1"}, map[string]string{"card": "4111"}
	h := open(t, trail.keep, func(c *server.Config) { c.History = oneFinished{finished} })
	for _, dry := range []bool{true, false} {
		_, err := h.operators.ReplayMessages(t.Context(), &adminv1.ReplayMessagesRequest{
			Selection:   &adminv1.FinishedSelection{Filter: &adminv1.FinishedFilter{Producer: "orders", Header: "card=4111"}},
			NewIdSuffix: "-again",
			Reason:      "test",
			DryRun:      dry,
		})
		var want []string
		if !dry {
			want = []string{` grpc replay done /orders [orders/1-again] ` +
				`filter="archive producer=\"orders\" header=\"card=...\"" reason="test" `}
		}
		if lines := trail.take(); err != nil || !slices.Equal(lines, want) {
			t.Errorf("a replay, dry: %t, is recorded as %q, %v", dry, lines, err)
		}
	}
}

// What the policy of a producer forbids is recorded, alone and in a batch, and so is a forbidden callback target.
func TestPolicyRefusalsAreRecorded(t *testing.T) {
	t.Parallel()
	trail := &recorded{}
	book := policy.NewBook()
	book.Use(policy.Set{Others: policy.Rules{Exchanges: []string{"shop"}}})
	h := open(t, trail.keep, func(c *server.Config) { c.Policies = book })
	r := good("1")
	r.Message.Exchange = "stock"
	_, err := h.producers.SendHalfMessage(t.Context(), r)
	wantCode(t, err, codes.PermissionDenied)
	_, err = h.producers.SendHalfMessages(t.Context(), batchOf(r.GetMessage(), good("2").GetMessage()))
	must.Succeed(t, err)
	lines := trail.take()
	if len(lines) != 2 {
		t.Fatalf("recorded %q", lines)
	}
	for _, line := range lines {
		if !strings.Contains(line, "SendHalfMessage refused policy/orders") ||
			!strings.Contains(line, `"stock" is forbidden`) {
			t.Errorf("recorded %q", line)
		}
	}
}

func TestListAudit(t *testing.T) {
	t.Parallel()
	trail := &recorded{}
	h := open(t, trail.keep)
	at := time.Unix(1700000000, 0).UTC()
	trail.records = []audit.Record{{
		ID: "c1-1", Time: at, Until: at.Add(time.Second), Kind: access.JWT, Action: audit.Discard, Producer: "orders",
		Names: []string{"orders/1"}, Filter: "state=DEAD", Count: 3, Reason: "why", Result: audit.Done,
		Refusal: audit.ByRole, Cause: "cause", Instance: "host-1",
	}}
	page, err := h.operators.ListAudit(t.Context(), &adminv1.ListAuditRequest{
		PageSize: 5, PageToken: "2-2.", ActorContains: "anna", ActionContains: "disc",
		Result: adminv1.AuditResult_AUDIT_RESULT_DONE, MaxAge: durationpb.New(time.Hour),
	})
	if err != nil || len(page.GetRecords()) != 1 || page.GetNextPageToken() != "1-1." {
		t.Fatalf("got %v, %v", page, err)
	}
	q := trail.asked
	if age := time.Since(q.Since); q.By != "anna" || q.Action != "disc" || q.Result != audit.Done || q.Limit != 5 ||
		q.Token != "2-2." || age < time.Hour || age > 2*time.Hour {
		t.Errorf("asked for %+v", q)
	}
	r := page.GetRecords()[0]
	if r.GetId() != "c1-1" || !r.GetTime().AsTime().Equal(at) || !r.GetLastTime().AsTime().Equal(at.Add(time.Second)) ||
		r.GetIdentityKind() != adminv1.IdentityKind_IDENTITY_KIND_JWT ||
		r.GetAction() != adminv1.AuditAction_AUDIT_ACTION_DISCARD || r.GetMethod() != "" ||
		r.GetProducer() != "orders" || r.GetNames()[0] != "orders/1" ||
		r.GetFilter() != "state=DEAD" || r.GetCount() != 3 || r.GetReason() != "why" ||
		r.GetResult() != adminv1.AuditResult_AUDIT_RESULT_DONE ||
		r.GetRefusal() != adminv1.RefusalKind_REFUSAL_KIND_ROLE || r.GetCause() != "cause" || r.GetInstance() != "host-1" {
		t.Errorf("got %v", r)
	}
	for what, bad := range map[string]*adminv1.ListAuditRequest{
		"size": {PageSize: 1001}, "negative size": {PageSize: -1}, "result": {Result: 9}, "token": {PageToken: "bad"},
		"actor": {ActorContains: strings.Repeat("x", 201)}, "action": {ActionContains: strings.Repeat("x", 201)},
		"age": {MaxAge: durationpb.New(-time.Second)},
	} {
		_, err := h.operators.ListAudit(t.Context(), bad)
		if err == nil {
			t.Errorf("%s: no error", what)
			continue
		}
		wantCode(t, err, codes.InvalidArgument)
	}
}
