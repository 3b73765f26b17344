package app_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// breakable is a broker of one coordinator, which a test cuts off and lets come back.
type breakable struct {
	t       *testing.T
	address string
	broker  *amqpbroker.Broker
}

func newBreakable(t *testing.T) *breakable {
	b := &breakable{t: t, address: "127.0.0.1:0"}
	b.open()
	t.Cleanup(func() { _ = b.broker.Close() })
	return b
}

func (b *breakable) open() {
	b.t.Helper()
	b.broker = amqpbroker.New(amqpbroker.Config{Logger: slog.New(slog.DiscardHandler)})
	address, err := b.broker.Listen(b.address)
	must.Succeed(b.t, err)
	b.address = address
}

func (b *breakable) url() string { return "amqp://guest:guest@" + b.address + "/" }

// finding is the coordinator's finding of a name; nil where it has none.
func (r *running) finding(t *testing.T, name string) *adminv1.Finding {
	t.Helper()
	stats, err := r.admin(t).GetStats(t.Context(), &adminv1.GetStatsRequest{})
	must.Succeed(t, err)
	for _, f := range stats.GetFindings() {
		if f.GetName() == name {
			return f
		}
	}
	return nil
}

// past are the problems of a name that the coordinator lists.
func (r *running) past(t *testing.T, name string) (all []*adminv1.Finding) {
	t.Helper()
	answer, err := r.admin(t).ListProblems(t.Context(), &adminv1.ListProblemsRequest{})
	must.Succeed(t, err)
	for _, f := range answer.GetProblems() {
		if f.GetName() == name {
			all = append(all, f)
		}
	}
	return all
}

// One coordinator alone cannot reach the broker. The others tell of it, and what was is told after all have restarted.
func TestTroubleOfOneIsSeenElsewhere(t *testing.T) {
	t.Parallel()
	redis, broker := servers.Redis(t), newBreakable(t)
	well := startAs(t, redis, "v1", nil)
	cutOff := startAs(t, redis, "v1", map[string]string{
		"amqp.url": broker.url(), "dead_letters.returns.queue": "returns.dead",
	})
	began := time.Now()
	must.Succeed(t, broker.broker.Close())
	var f *adminv1.Finding
	servers.Eventually(t, 30*time.Second, "the other coordinator tells of the trouble", func() bool {
		f = well.finding(t, "rabbitmq-away")
		return f != nil
	})
	if !strings.HasPrefix(f.GetWhat(), "coordinator "+cutOff.Instance()+`: the check "rabbitmq" fails: `) ||
		!strings.Contains(f.GetRemedy(), "amqp.url") || f.GetSeverity() != adminv1.Severity_SEVERITY_TROUBLE ||
		f.GetStartTime().AsTime().Before(began.Add(-time.Second)) || f.GetStartTime().AsTime().After(time.Now()) {
		t.Errorf("found is %v", f)
	}
	servers.Eventually(t, 30*time.Second, "what follows names the trouble", func() bool {
		return well.finding(t, "letters-unread").GetFollows() == "rabbitmq-away"
	})
	if f.GetSubject() != "rabbitmq" || f.GetFollows() != "" {
		t.Errorf("the trouble is of %q, and follows %q", f.GetSubject(), f.GetFollows())
	}
	if page := well.get(t, "/"); !strings.Contains(page, "coordinator "+cutOff.Instance()+": the check") {
		t.Errorf("the page is\n%s", page)
	}
	if all := well.past(t, "rabbitmq-away"); len(all) != 1 || all[0].GetEndTime() != nil {
		t.Errorf("listed are %v", all)
	}
	if all := well.past(t, "letters-unread"); len(all) != 1 || all[0].GetFollows() != "rabbitmq-away" {
		t.Errorf("listed are %v", all)
	}
	broker.open()
	servers.Eventually(t, time.Minute, "the trouble is over", func() bool {
		return well.finding(t, "rabbitmq-away") == nil && cutOff.finding(t, "rabbitmq-away") == nil
	})
	must.Succeed(t, cutOff.Stop(context.Background()))
	stopped := time.Now() // on a busy machine long after the trouble
	must.Succeed(t, well.Stop(context.Background()))

	next := startAs(t, redis, "v1", nil)
	all := next.past(t, "rabbitmq-away")
	if len(all) != 1 || !all[0].GetStartTime().AsTime().Equal(f.GetStartTime().AsTime()) &&
		all[0].GetStartTime().AsTime().Sub(f.GetStartTime().AsTime()).Abs() > time.Second ||
		all[0].GetEndTime().AsTime().Before(all[0].GetStartTime().AsTime()) ||
		all[0].GetEndTime().AsTime().After(stopped.Add(time.Second)) ||
		all[0].GetCoordinators()[0] != cutOff.Instance() {
		t.Errorf("listed are %v", all)
	}
	if n := len(next.past(t, "coordinator-started")); n != 3 {
		t.Errorf("%d starts are listed", n)
	}
	if n := len(next.past(t, "coordinator-stopped")); n != 2 {
		t.Errorf("%d stops are listed", n)
	}
}

func TestARefusedConfigurationIsSeenElsewhere(t *testing.T) {
	t.Parallel()
	redis := servers.Redis(t)
	changing, other := startReloading(t, redis.URL(), "confirm:\n  after: 2s\n"), startAs(t, redis, "v1", nil)
	changing.swap("confirm:\n  afer: 2s\n")
	servers.Eventually(t, 30*time.Second, "the other coordinator tells of the refused configuration", func() bool {
		f := other.finding(t, "config-refused")
		return f != nil && strings.HasPrefix(f.GetWhat(), "coordinator "+changing.Instance()+": ")
	})
	changing.swap("confirm:\n  after: 3s\n")
	servers.Eventually(t, 30*time.Second, "the configuration is used", func() bool {
		return other.finding(t, "config-refused") == nil
	})
}

// A cause that all coordinators see is one problem.
func TestOneCauseIsOneProblem(t *testing.T) {
	t.Parallel()
	redis, broker := servers.Redis(t), newBreakable(t)
	keys := map[string]string{"amqp.url": broker.url()}
	one, other := startAs(t, redis, "v1", keys), startAs(t, redis, "v1", keys)
	must.Succeed(t, broker.broker.Close())
	for _, r := range []*running{one, other} {
		servers.Eventually(t, 30*time.Second, "the trouble is that of both", func() bool {
			f := r.finding(t, "rabbitmq-away")
			return f != nil && strings.HasSuffix(f.GetWhat(), "(on all 2 coordinators)") && len(f.GetCoordinators()) == 2
		})
	}
}
