package doctor_test

import (
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/app/doctor"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// A named queue that does not exist is a mistake, not a healthy part.
func TestMissingDeadLetterQueueIsReported(t *testing.T) {
	t.Parallel()
	s := newSite(t, servers.RabbitMQ(t).URL)
	s.e.DeadLetterQueues = []string{"payment.dead"}
	for _, f := range doctor.Examine(t.Context(), s.e) {
		if f.Name == "dead-letters-missing" && strings.Contains(f.What, "payment.dead does not exist") {
			return
		}
	}
	t.Error("nothing is found")
}

func TestLimitedDeadLetterQueueIsFound(t *testing.T) {
	t.Parallel()
	vhost := servers.RabbitMQ(t)
	s := newSite(t, vhost.URL)
	conn, err := amqp.Dial(vhost.URL)
	must.Succeed(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	must.Succeed(t, err)
	quorum := func(queue string, further amqp.Table) {
		further[amqp.QueueTypeArg] = amqp.QueueTypeQuorum
		if _, err := ch.QueueDeclare(queue, true, false, false, false, further); err != nil {
			t.Fatal(err)
		}
	}
	quorum("old.dead", amqp.Table{})
	quorum("fixed.dead", amqp.Table{"x-delivery-limit": int64(5)})
	s.e.Settings.Events.DeadLetterQueues = []string{"old.dead", "missing.dead"}
	s.e.DeadLetterQueues = []string{"fixed.dead", "old.dead"}
	var limited []string
	for _, f := range doctor.Examine(t.Context(), s.e) {
		if f.Name == "dead-letters-limited" {
			limited = append(limited, f.What+"; "+f.Remedy)
		}
	}
	slices.Sort(limited)
	want := []string{"fixed.dead has a delivery limit of 5; no policy lifts"}
	if strings.HasPrefix(conn.Properties["version"].(string), "4.") {
		want = append(want, "old.dead has a delivery limit of 20, unless")
	}
	if len(limited) != len(want) {
		t.Fatalf("found %q, want %q", limited, want)
	}
	for i := range want {
		if !strings.Contains(limited[i], want[i]) {
			t.Errorf("found %q, want %q", limited[i], want[i])
		}
	}
	const policy = `--vhost '%s' --apply-to quorum_queues --priority 10 'unlimited-old.dead' '^old\.dead$' ` +
		`'{"delivery-limit":-1}'`
	if len(want) > 1 && !strings.Contains(limited[1], strings.ReplaceAll(policy, "%s", vhost.Name)) {
		t.Errorf("the doctor does not name the policy: %s", limited[1])
	}
}
