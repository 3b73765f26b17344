package app_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/config"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// The messages of a chain come in the order in which they were stored, in any order of their Submits, and no
// schedule holds them up: the passes come once an hour here.
func TestChainComesInItsOrder(t *testing.T) {
	r := start(t, settings(func(c *config.Config) {
		c.Confirm.Schedule, c.Send.Schedule = "@every 1h", "@every 1h"
		c.Redis.Shards, c.DeleteBusiness.When = 4, config.AfterAck
	}))
	r.awaitReady(t)
	p, client := startOrders(t), r.producers(t)
	deliveries := r.queue(t, "paid")
	const messages = 40
	for i := range messages {
		request := half(p, fmt.Sprint(i))
		request.Message.OrderingKey = "customer-7"
		if _, err := client.SendHalfMessage(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	for i := messages - 1; i >= 0; i-- {
		submit := &msghandlerv1.SubmitRequest{Producer: "orders", Id: fmt.Sprint(i), Wait: msghandlerv1.Wait_WAIT_SENDABLE}
		if _, err := client.Submit(t.Context(), submit); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			got, err := r.admin(t).GetMessage(t.Context(), &adminv1.GetMessageRequest{Producer: "orders", Id: "39"})
			if err != nil || got.GetRecord().GetHeldBy() != "0" {
				t.Errorf("held by %q, %v", got.GetRecord().GetHeldBy(), err)
			}
		}
	}
	for i := range messages {
		select {
		case d := <-deliveries:
			if d.MessageId != fmt.Sprint(i) || d.Headers["msghandler-key"] != "customer-7" {
				t.Fatalf("delivery %d is %s with the key %v", i, d.MessageId, d.Headers["msghandler-key"])
			}
		case <-time.After(time.Minute):
			t.Fatalf("delivery %d does not come", i)
		}
	}
	// The markers are deleted after the acknowledgements, in each shard.
	r.awaitStats(t, "no message stays", func(stats *adminv1.GetStatsResponse) bool {
		return !slices.ContainsFunc(stats.GetStates(), func(s *adminv1.StateStats) bool { return s.GetCount() > 0 })
	})
}
