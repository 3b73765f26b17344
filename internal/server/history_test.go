package server_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	"github.com/msghandler/msghandler/internal/server/policy"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/must"
)

// oneFinished is a history of a single message.
type oneFinished struct{ halfmsg.Finished }

func (o oneFinished) Archives() bool { return true }

func (o oneFinished) Archive(context.Context) (halfmsg.ArchiveStat, error) {
	return halfmsg.ArchiveStat{Messages: 1, OldestAt: o.At}, nil
}

func (o oneFinished) ListFinished(_ context.Context, q halfmsg.FinishedQuery) (page halfmsg.FinishedPage, _ error) {
	if q.Matches(&o.Finished) {
		page.Messages = append(page.Messages, o.Finished)
	}
	return page, nil
}

func (o oneFinished) GetFinished(context.Context, halfmsg.Name, string) (halfmsg.Finished, error) {
	return o.Finished, nil
}

func (o oneFinished) Replay(_ context.Context, replays []halfmsg.Replay, how halfmsg.ReplayHow) []halfmsg.Result {
	results := make([]halfmsg.Result, len(replays))
	for i := range results {
		if how.MayPublish != nil {
			results[i].Err = how.MayPublish(&o.Message)
		}
	}
	return results
}

// A policy may have changed since a message was accepted. No role publishes past it, and no such try is a change.
func TestReplayKeepsToThePolicy(t *testing.T) {
	t.Parallel()
	finished := halfmsg.Finished{Entry: "1-0", Ended: halfmsg.EndedDone, At: time.Now(), CommittedAt: time.Now()}
	finished.Name = halfmsg.Name{Producer: "orders", ID: "1"}
	finished.Exchange, finished.Body = "payroll", []byte("body")
	for exchange, may := range map[string]bool{"shop.*": false, "payroll": true} {
		book, trail := policy.NewBook(), &recorded{}
		book.Use(policy.Set{Named: map[string]policy.Rules{"orders": {Exchanges: []string{exchange}}}})
		h := open(t, trail.keep, func(c *server.Config) { c.History, c.Policies = oneFinished{finished}, book })
		named, err := h.operators.ReplayMessages(t.Context(), &adminv1.ReplayMessagesRequest{
			Selection: &adminv1.FinishedSelection{Names: []*adminv1.FinishedName{{Producer: "orders", Id: "1"}}},
		})
		must.Succeed(t, err)
		if reason := named.GetOutcomes()[0].GetReason(); (reason == "") != may || !may && reason != "POLICY_FORBIDDEN" {
			t.Errorf("where %s is allowed, the outcome is %v", exchange, named.GetOutcomes())
		}
		all, err := h.operators.ReplayMessages(t.Context(), &adminv1.ReplayMessagesRequest{
			Selection: &adminv1.FinishedSelection{Filter: &adminv1.FinishedFilter{Producer: "orders"}},
		})
		if err != nil || (all.GetChanged() == 1) != may || (all.GetSkipped() == 1) == may {
			t.Errorf("where %s is allowed: %v, %v", exchange, all, err)
		}
		if lines := trail.take(); len(lines) != map[bool]int{true: 2}[may] {
			t.Errorf("where %s is allowed, recorded %q", exchange, lines)
		}
	}
}

// A viewer sees what a finished message was and not what it said, and no filter tells.
func TestOnlyReadersSeeFinishedBodies(t *testing.T) {
	t.Parallel()
	finished := halfmsg.Finished{Entry: "1-0", Ended: halfmsg.EndedDone, At: time.Now()}
	finished.Name = halfmsg.Name{Producer: "orders", ID: "1"}
	finished.Body, finished.Headers = []byte("body"), map[string]string{"card": "4111"}
	for _, hidden := range []bool{false, true} {
		h := open(t, func(c *server.Config) {
			c.Access, c.HideBodies = authenticator(t, access.Rules{}, someTokens()), hidden
			c.History = oneFinished{finished}
		})
		for _, token := range []string{"viewer", "reader", "operator", "admin"} {
			sees, ctx := token != "viewer" && !hidden, withToken(t.Context(), token)
			one, err := h.operators.GetFinished(ctx, &adminv1.GetFinishedRequest{Producer: "orders", Id: "1"})
			must.Succeed(t, err)
			list, err := h.operators.ListFinished(ctx, &adminv1.ListFinishedRequest{})
			if err != nil || len(list.GetMessages()) != 1 {
				t.Fatal(list, err)
			}
			for _, f := range []*adminv1.FinishedMessage{one.GetMessage(), list.GetMessages()[0]} {
				m := f.GetMessage()
				if (len(m.GetBody()) > 0) != sees || (len(m.GetHeaders()) > 0) != sees || m.GetId() != "1" {
					t.Errorf("%s sees %v where bodies are hidden: %t", token, m, hidden)
				}
			}
			filter := &adminv1.FinishedFilter{Header: "card=4111"}
			_, err = h.operators.ListFinished(ctx, &adminv1.ListFinishedRequest{Filter: filter})
			if (err == nil) != sees {
				t.Errorf("%s searches headers where bodies are hidden, %t: %v", token, hidden, err)
			}
			_, err = h.operators.ReplayMessages(ctx, &adminv1.ReplayMessagesRequest{
				Selection: &adminv1.FinishedSelection{Filter: filter},
				DryRun:    true,
			})
			if may := sees && token != "reader"; (status.Code(err) == codes.OK) != may {
				t.Errorf("%s replays by headers where bodies are hidden, %t: %v", token, hidden, err)
			}
		}
	}
}
