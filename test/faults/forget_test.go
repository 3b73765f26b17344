package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/producer"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

// Faults in which Redis forgets acknowledged writes: its last second in a power cut, or the writes that a lagging
// replica never got. No promise covers the messages whose only record is lost. So their producers send them again,
// as docs/reference/guarantees.md says, and then nothing may be missing. No id is repeated under load: a Send that is
// repeated after the loss of its record makes a new message, and the copies cannot know of each other.
var forgetRows = []row{
	{
		name: "F14", copies: true, leavesMarkers: true, fault: powerCut(routed), heal: sendAgain, judge: copiesFlagged,
		world: options{once: true},
	},
	{
		name: "F14_unrouted", copies: true, leavesMarkers: true, fault: powerCut(unrouted), heal: sendAgain,
		judge: markersGone, world: options{once: true},
	},
	{
		name: "F14_after_ack", copies: true, leavesMarkers: true, fault: powerCut(unrouted), heal: sendAgain,
		judge: markersKept, world: options{once: true, settings: []string{"MSGHANDLER_DELETE_BUSINESS_WHEN=after_ack"}},
	},
	{
		name: "F14_acked", copies: true, leavesMarkers: true, fault: powerCut(routed), heal: sendAgain, judge: copiesUnmarked,
		world: options{once: true, settings: []string{"MSGHANDLER_DELETE_BUSINESS_WHEN=after_ack"}},
	},
	{
		name: "F14_resend", copies: true, leavesMarkers: true, users: keepers, fault: powerCut(unrouted), heal: sendAgain,
		judge: relaysSent,
		world: options{once: true, settings: []string{"MSGHANDLER_DELETE_BUSINESS_WHEN=after_ack"}},
	},
	{
		name: "F15", copies: true, leavesMarkers: true, fault: failOver, heal: sendAgain, judge: copiesFlagged,
		world: options{once: true, replica: true},
	},
	{
		name: "F15_wait", copies: true, leavesMarkers: true, fault: failOverInStep, judge: copiesFlagged,
		world: options{once: true, replica: true, settings: append([]string{"MSGHANDLER_REDIS_MIN_REPLICAS=1"}, patient...)},
	},
}

// forgotten describes the acknowledged writes that Redis lost.
type forgotten struct {
	// from and to bound the time of the loss.
	from, to time.Time
	// surely and back bound the time in which all acknowledged writes are forgotten.
	surely, back time.Time
	// messages counts the lost messages that were not delivered by then; unmarked counts the ones of these messages
	// whose markers were deleted.
	messages, unmarked int
}

// lateAnswer is how long an answer of a dead Redis may take to its producer, which notes then which messages were
// accepted.
const lateAnswer = 500 * time.Millisecond

// until says that nothing more is forgotten: the Redis that lost its writes is gone.
func (f *forgotten) until() { f.to = time.Now().Add(lateAnswer) }

// during says whether a write acknowledged at that time may be forgotten.
func (f forgotten) during(at time.Time) bool { return at.After(f.from) && at.Before(f.to) }

const routed, unrouted = true, false

// powerCut puts Redis back to its state of a second ago. Messages that cannot be routed meanwhile have their verdict
// and wait, so that the order of publishing and deleting markers matters.
func powerCut(routed bool) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, _ *rand.Rand) {
		pause(ctx, time.Second)
		if !routed {
			w.bind(false)
			defer w.bind(true)
		}
		w.forgot.from = time.Now()
		earlier := w.redis.Copy()
		w.forgot.surely = time.Now()
		w.ledger.Fault("writes from now on are forgotten")
		wait(time.Second)
		w.forgot.back = time.Now()
		w.redis.PutBack(earlier)
		w.forgot.until()
		w.ledger.Fault("Redis is back as it was a second ago")
		w.regressed()
		w.allReady()
	}
}

// bind gives the queue its binding, or takes it away.
func (w *world) bind(bound bool) {
	w.t.Helper()
	conn, err := amqp.Dial(w.broker.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		w.t.Fatal(err)
	}
	if bound {
		err = channel.QueueBind(queue, "#", exchange, false, nil)
	} else {
		err = channel.QueueUnbind(queue, "#", exchange, nil)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.ledger.Fault(fmt.Sprintf("the queue is bound: %t", bound))
}

// replicate gives Redis a replica and a Sentinel.
func (w *world) replicate() {
	w.t.Helper()
	w.replica = servers.Replica(w.t, w.redis)
	w.sentinel = servers.Sentinel(w.t, w.redis, w.replica).URL()
}

// failOver cuts the replica off for a second; then the master dies, and the Sentinel puts the replica in charge.
func failOver(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	w.cutReplica()
	w.redis.Kill()
	w.forgot.until()
	w.ledger.Fault("the master is dead")
	w.promoted()
	w.regressed()
	w.allReady()
}

// failOverInStep does the same where a half message is acknowledged only when a replica has the record. Without a
// replica the outcome is unknown; no acknowledged write is forgotten.
func failOverInStep(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	w.cutReplica()
	w.refuses(codes.Unknown, "OUTCOME_UNKNOWN")
	w.redis.Kill()
	w.ledger.Fault("the master is dead")
	w.promoted()
	w.regressed()
	w.replica.Start()
	w.replica.Follow(w.redis)
	w.ledger.Fault("the former master is its replica")
	w.allReady()
}

// cutReplica ends the replication for a second, after all writes acknowledged until then have arrived.
func (w *world) cutReplica() {
	w.t.Helper()
	w.forgot.from = time.Now()
	client := redis.NewClient(&redis.Options{Addr: w.redis.Addr})
	defer client.Close()
	pipe := client.Pipeline() // WAIT is about what its own connection has written
	pipe.Set(w.t.Context(), "in step", "", time.Minute)
	have := pipe.Do(w.t.Context(), "wait", 1, patience.Milliseconds())
	if _, err := pipe.Exec(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if n, err := have.Int(); err != nil || n != 1 {
		w.t.Fatalf("%d replicas are in step, %v", n, err)
	}
	w.replica.CLI("REPLICAOF", "127.0.0.1", "1") // without a server there
	w.ledger.Fault("the replica gets nothing any more")
	wait(time.Second)
}

// promoted waits until the replica is the master. The former master counts as its replica from now on.
func (w *world) promoted() {
	w.t.Helper()
	servers.Eventually(w.t, patience, "the Sentinel puts the replica in charge", w.replica.IsMaster)
	w.redis, w.replica = w.replica, w.redis
	w.ledger.Fault("the replica is the master")
}

// regressed demands that every coordinator detects the rollback of Redis and reports the rollback in each of its
// ways, and that the doctor reports the rollback too.
func (w *world) regressed() {
	w.t.Helper()
	for _, c := range w.coordinators {
		servers.Eventually(w.t, patience, "a coordinator reports the rollback of Redis", func() bool {
			_, ready := c.page("/readyz")
			_, metrics := c.page("/metrics")
			log, err := os.ReadFile(c.log)
			if err != nil {
				w.t.Fatal(err)
			}
			return strings.Contains(ready, "data rollback detected") &&
				strings.Contains(string(log), "Redis data rollback detected") &&
				!strings.Contains(metrics, "msghandler_store_regressions_total 0")
		})
	}
	if said := w.doctor(w.coordinators[0]); !strings.Contains(said, "data rollback detected") {
		w.t.Errorf("the doctor says nothing of the rollback:\n%s", said)
	}
}

// doctor returns the doctor's findings with a coordinator's settings.
func (w *world) doctor(c *coordinator) (said string) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), c.Cmd.Path, "doctor")
	cmd.Env = c.Cmd.Env
	out, err := cmd.CombinedOutput()
	if found := new(exec.ExitError); err != nil && !errors.As(err, &found) {
		w.t.Fatal("doctor:", err)
	}
	return string(out)
}

// sendAgain is the producers' part after a loss: they compare the commits of those moments with the deliveries, and
// send the missing messages again. Before that, Redis and the coordinators' memory must be empty. No message
// acknowledged at another time may be missing at all.
func sendAgain(t *testing.T, w *world, l *load) {
	t.Helper()
	servers.Eventually(t, patience, "nothing is on its way", func() bool {
		underway, ok := w.standing(pb.State_STATE_PENDING, pb.State_STATE_SENDABLE)
		return ok && len(underway) == 0
	})
	for _, c := range w.coordinators {
		w.restart(c)
	}
	missing := w.ledger.Undelivered()
	for key, e := range missing {
		if !w.forgot.during(e.AcceptedAt) {
			t.Errorf("%s is missing, and Redis had not forgotten the message:\n%s", key, w.ledger.History(key))
		}
		name, id, _ := strings.Cut(key, "/")
		for _, u := range l.users {
			if r, can := u.(repeater); can && r.called() == name && r.repeat(t, id, e) {
				w.forgot.unmarked++
			}
		}
	}
	w.forgot.messages = len(missing)
	t.Logf("%d messages were forgotten and not delivered, %d of them without their marker",
		len(missing), w.forgot.unmarked)
}

// repeater is a user who can send a message of earlier again.
type repeater interface {
	called() string
	repeat(t *testing.T, id string, e Entry) (unmarked bool)
}

// repeat sends an earlier message again. The result says whether the marker of its Send is gone, so that the business
// was run again and found its own data.
func (s *service) repeat(t *testing.T, id string, e Entry) (unmarked bool) {
	t.Helper()
	d := deed{id: id, key: s.key(id), headers: headersOf(id), body: bodyOf(id, e.Content.Size)}
	err := s.send(t.Context(), s.message(d), d)
	if err != nil && !errors.Is(err, producer.ErrAlreadyCommitted) {
		t.Errorf("%s sent again: %v", d.key, err)
	}
	s.ledger.Noted(d.key, "producer", "has sent it again")
	return e.SendReturned && err == nil
}

// copiesFlagged demands that messages were sent a second time: Redis had forgotten that they were done.
func copiesFlagged(t *testing.T, w *world, _ *load, _ End) {
	t.Helper()
	if flagged, _ := w.ledger.Flagged(); flagged == 0 {
		t.Error("no finished message was sent again after Redis had forgotten its end")
	}
}

// copiesUnmarked demands the same, and that the markers of all messages that were delivered a second time are deleted
// in the end. A message that was delivered and then forgotten whole may leave its marker: no record of the message is
// left.
func copiesUnmarked(t *testing.T, w *world, l *load, end End) {
	t.Helper()
	copiesFlagged(t, w, l, end)
	servers.Eventually(t, deletion, "no message delivered twice has its marker", func() bool {
		twice := func(key string) bool { return w.ledger.Delivered(key) > 1 }
		return !slices.ContainsFunc(l.remainingMarkers(t, w, nil, 0), twice)
	})
}

// markersGone demands that messages were forgotten after their markers had been deleted: the fault of before_publish.
func markersGone(t *testing.T, w *world, l *load, _ End) {
	t.Helper()
	if w.forgot.unmarked == 0 {
		t.Errorf("of %d forgotten messages none had lost its marker", w.forgot.messages)
	}
	shopsRepeated(t, l)
}

// shopsRepeated demands that each shop had forgotten messages. Each message was recognised when the shop sent the
// message again.
func shopsRepeated(t *testing.T, l *load) {
	t.Helper()
	for _, u := range l.users {
		if s, is := u.(*shop); is {
			t.Logf("%s: %d forgotten messages, all recognised by their rows", s.name, s.repeated)
			if s.repeated == 0 {
				t.Errorf("nothing of %s was forgotten", s.name)
			}
		}
	}
}

// markersKept demands that the producers still had the markers of all forgotten messages.
func markersKept(t *testing.T, w *world, l *load, _ End) {
	t.Helper()
	if w.forgot.messages == 0 || w.forgot.unmarked > 0 {
		t.Errorf("%d messages were forgotten, %d of them without their marker", w.forgot.messages, w.forgot.unmarked)
	}
	shopsRepeated(t, l)
}
