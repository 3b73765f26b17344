package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

// RabbitMQ's alarms.
var alarmRows = []row{
	{
		name: "F31_memory", copies: true, load: alarmLoad, world: options{ownBroker: true}, judge: felt("unsure"),
		fault: alarm("set_vm_memory_high_watermark 0.0000001", "set_vm_memory_high_watermark absolute 1GB"),
	},
	{
		name: "F31_disk", copies: true, load: alarmLoad, world: options{ownBroker: true}, judge: felt("unsure"),
		fault: alarm("set_disk_free_limit 1000000GB", "set_disk_free_limit 100MB"),
	},
	{name: "F31_start", copies: true, load: alarmLoad, world: options{ownBroker: true}, fault: startInAlarm},
}

const (
	alarmLasts = 40 * time.Second
	// alarmLoad is long enough for an alarm to meet it, however long rabbitmqctl takes.
	alarmLoad = 20 * time.Second
	// answered is longer than MSGHANDLER_SEND_CONFIRM_TIMEOUT: each publish under way when an alarm came has been given
	// up by then.
	answered = 4 * time.Second
	// grace is the default of shutdown.grace.
	grace = 20 * time.Second
)

// alarm is a fault that raises an alarm and clears the alarm again. Meanwhile a coordinator is stopped, and must stop
// without a wait; the others must ask producers as before, and publish nothing.
func alarm(raise, clearing string) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, _ *rand.Rand) {
		began := time.Now()
		w.ledger.Fault("rabbitmqctl " + raise)
		w.node.Ctl(strings.Fields(raise)...)
		w.degraded("takes no messages")
		w.ledger.Fault("every coordinator knows of the alarm")
		stopped := w.coordinators[len(w.coordinators)-1]
		w.stopInTime(stopped)
		wait(answered)
		before := w.sent()
		<-ctx.Done()
		w.confirmsGoOn()
		wait(time.Until(began.Add(alarmLasts)))
		if now := w.sent(); now != before {
			w.t.Errorf("%d messages were published during the alarm", now-before)
		}
		w.node.Ctl(strings.Fields(clearing)...)
		w.ledger.Fault("rabbitmqctl " + clearing)
		w.start(stopped)
		w.allReady()
	}
}

// startInAlarm starts a coordinator during an alarm. The coordinator must take messages, and name the failure once
// RabbitMQ reports the alarm: to a connection that publishes first.
func startInAlarm(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	w.ledger.Fault("an alarm is raised")
	w.node.Ctl("set_disk_free_limit", "1000000GB")
	w.degraded("takes no messages")
	started := w.coordinators[len(w.coordinators)-1]
	w.stopInTime(started)
	w.start(started)
	w.ledger.Fault("a coordinator starts during the alarm")
	for n := range 20 {
		id := fmt.Sprintf("alarmed-%06d", n)
		servers.Eventually(w.t, patience, "a coordinator started during an alarm takes "+id, func() bool {
			return started.direct.send(w.t.Context(), id) == codes.OK
		})
	}
	w.degraded("takes no messages")
	w.confirmsGoOn()
	if n := w.countedBy(started, `msghandler_publishes_total{outcome="acked"}`); n > 0 {
		w.t.Errorf("%d of its messages were acknowledged during the alarm", n)
	}
	w.node.Ctl("set_disk_free_limit", "100MB")
	w.ledger.Fault("the alarm is over")
	w.allReady()
	// The others may have published all waiting messages.
	if err := started.direct.insist(w.t.Context(), "alarmed-last"); err != nil {
		w.t.Error("the coordinator started during the alarm does not deliver:", err)
	}
	servers.Eventually(w.t, patience, "the coordinator started during the alarm publishes", func() bool {
		return w.countedBy(started, `msghandler_publishes_total{outcome="acked"}`) > 0
	})
}

// stopInTime ends a coordinator as an orchestrator does, and demands a clean exit within the grace period.
func (w *world) stopInTime(c *coordinator) {
	w.t.Helper()
	began := time.Now()
	err := w.end(c, syscall.SIGTERM)
	took := time.Since(began)
	w.t.Logf("a coordinator asked to stop ended after %v", took.Round(10*time.Millisecond))
	if err != nil || took > grace {
		w.t.Errorf("the coordinator should have ended cleanly within %v: %v", grace, err)
	}
}

// sent is how many publishes have left the coordinators.
func (w *world) sent() int {
	w.t.Helper()
	return w.published("acked") + w.published("refused") + w.published("unsure")
}

// confirmsGoOn waits until every message's fate is known, and demands that each committed message waits for the
// broker.
func (w *world) confirmsGoOn() {
	w.t.Helper()
	w.fatesKnown()
	sendable, ok := w.standing(pb.State_STATE_SENDABLE)
	w.t.Logf("during the alarm the fate of every message became known; %d wait for the broker", len(sendable))
	if !ok || len(sendable) == 0 {
		w.t.Error("nothing waits for the broker during the alarm")
	}
}

// fatesKnown waits until no producer has to be asked any more.
func (w *world) fatesKnown() {
	w.t.Helper()
	servers.Eventually(w.t, alarmLasts, "the fate of every message is known", func() bool {
		pending, ok := w.standing(pb.State_STATE_PENDING)
		return ok && len(pending) == 0
	})
}
