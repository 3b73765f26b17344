package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// Hundreds of messages that fail for one cause have a line for each interval, and the lines count every message.
func TestFailuresOfOneCauseShareLines(t *testing.T) {
	t.Parallel()
	const messages = 300
	var dead, about int
	for _, line := range linesOfRefused(t, messages, slog.LevelInfo) {
		if _, named := line["message_id"]; named {
			about++
		}
		if !strings.HasPrefix(line["msg"].(string), "sending failed; messages are DEAD") {
			continue
		}
		dead += int(line["count"].(float64))
		if line["producer"] != "orders" || !strings.HasPrefix(line["message_id"].(string), "orders/order-") {
			t.Errorf("the line is %v", line)
		}
	}
	// More than one interval may pass on a busy machine.
	if dead != messages || about > 20 {
		t.Errorf("the lines count %d dead messages, and %d lines name a message", dead, about)
	}
}

func TestDeliveriesAreLoggedAtDebug(t *testing.T) {
	t.Parallel()
	var reached []string
	for _, line := range linesOfRefused(t, 1, slog.LevelDebug) {
		if line["msg"] != "delivery" {
			continue
		}
		if took, _ := line["took_ms"].(float64); took < 0 || line["cause"] == nil || line["exchange"] != "" {
			t.Errorf("the line is %v", line)
		}
		reached = append(reached,
			fmt.Sprintf("%v %v %v %v", line["message_id"], line["routing_key"], line["attempt"], line["state"]))
	}
	want := []string{"orders/order-0 nowhere 1 sendable", "orders/order-0 nowhere 2 dead"}
	if !slices.Equal(reached, want) {
		t.Errorf("the deliveries are %q, want %q", reached, want)
	}
}

// linesOfRefused has a coordinator publish messages to a queue that does not exist, until all are DEAD, and returns the
// coordinator's lines.
func linesOfRefused(t *testing.T, messages int, level slog.Level) (lines []map[string]any) {
	t.Helper()
	var log servers.Log
	a, err := app.New(t.Context(), onEmbedded(t, settings(func(c *config.Config) {
		c.Send.Backoff = backoff.Steps{time.Millisecond}
	})), app.Deps{Version: "v0", Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: level}))})
	must.Succeed(t, err)
	go func() { _ = a.Run(context.Background()) }()
	producer := startOrders(t)
	client := msghandlerv1.NewMessageHandlerServiceClient(dial(t, a.GRPCAddr()))
	send := &msghandlerv1.SendHalfMessagesRequest{Producer: "orders", CallbackTarget: producer.addr}
	submit := &msghandlerv1.SubmitAllRequest{Producer: "orders"}
	for i := range messages {
		id := fmt.Sprintf("order-%d", i)
		send.Messages = append(send.Messages, &msghandlerv1.Message{Id: id, RoutingKey: "nowhere"})
		submit.Ids = append(submit.Ids, id)
	}
	servers.Eventually(t, 20*time.Second, "the messages are stored", func() bool {
		_, err := client.SendHalfMessages(t.Context(), send)
		return err == nil
	})
	if _, err := client.SubmitAll(t.Context(), submit); err != nil {
		t.Fatal(err)
	}
	admin := adminv1.NewAdminServiceClient(dial(t, a.GRPCAddr()))
	servers.Eventually(t, time.Minute, "all messages are dead", func() bool {
		stats, err := admin.GetStats(t.Context(), &adminv1.GetStatsRequest{})
		for _, s := range stats.GetStates() {
			if s.GetState() == msghandlerv1.State_STATE_DEAD {
				return s.GetCount() == int64(messages)
			}
		}
		return err != nil
	})
	must.Succeed(t, a.Stop(context.Background()))
	for raw := range bytes.Lines([]byte(log.String())) {
		var line map[string]any
		if err := json.Unmarshal(raw, &line); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		lines = append(lines, line)
	}
	return lines
}
