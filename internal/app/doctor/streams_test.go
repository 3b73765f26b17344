package doctor_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/app/doctor"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/memory"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// A producer that attends serves no port: a coordinator asks it, for the doctor and for verify-producer.
func TestAttendingProducerIsAskedThroughCoordinator(t *testing.T) {
	t.Parallel()
	s := newSite(t, servers.RabbitMQ(t).URL)
	markers := memory.New()
	_, err := markers.Put(t.Context(), []string{"0999"}, marker.Committed)
	must.Succeed(t, err)
	p, err := producer.New(producer.Config{Name: "stock", Coordinator: s.app.GRPCAddr(), Markers: markers})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = p.Close(context.Background()) })

	servers.Eventually(t, 30*time.Second, "the doctor asks the producer", func() bool {
		found := doctor.Examine(t.Context(), s.e)
		for _, f := range found {
			if f.Area == "producer stock" {
				return f.Severity == doctor.OK && strings.Contains(f.What, "answers over its stream")
			}
		}
		return false
	})
	s.e.Known.Deleted = []string{"0999"}
	found := doctor.Verify(t.Context(), s.e, "stock", "attend:///stock")
	checks := map[string]bool{}
	for _, f := range found {
		checks[f.Check] = true
		if f.Severity == doctor.Trouble || f.Check == "deleted" && f.Severity != doctor.OK {
			t.Errorf("%s: %s", f.Name, f.What)
		}
	}
	for _, check := range []string{"reach", "batch", "another-name", "final", "concurrent", "deletions", "deleted"} {
		if !checks[check] {
			t.Errorf("the check %s was not made: %+v", check, found)
		}
	}
}

// Without a coordinator nothing is known of a producer that attends, and the finding is about the coordinator.
func TestUnaskedProducerIsNotBlamed(t *testing.T) {
	t.Parallel()
	s := newSite(t, servers.RabbitMQ(t).URL)
	found := doctor.Verify(t.Context(), s.e, "stock", "attend:///stock")
	if len(found) != 1 || found[0].Name != "producer-away" || !doctor.Unreached(found) {
		t.Errorf("no producer attends, and found is %+v", found)
	}
	s.e.Producers = map[string]string{"stock": "attend:///stock"}
	s.e.Coordinator.Address = servers.Addresses(t, 1)[0]
	blamed := func(f doctor.Finding) bool { return f.Area == "producer stock" }
	if found := doctor.Examine(t.Context(), s.e); slices.ContainsFunc(found, blamed) {
		t.Errorf("no coordinator serves, and the doctor found %+v", found)
	}
	found = doctor.Verify(t.Context(), s.e, "stock", "attend:///stock")
	if len(found) != 1 || found[0].Name != "coordinator-away" || !doctor.Unreached(found) {
		t.Errorf("no coordinator serves, and found is %+v", found)
	}
}
