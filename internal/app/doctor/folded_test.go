package doctor

import (
	"slices"
	"testing"

	"github.com/msghandler/msghandler/internal/cause"
)

// A full disk is one problem, with its consequences below. Brokers stay apart.
func TestConsequencesStandBelowTheirCause(t *testing.T) {
	t.Parallel()
	found := []Finding{
		{Area: areaBroker},
		{Area: areaBroker, Name: "rabbitmq-alarm", Severity: Trouble},
		{Area: cause.BrokerSubject("eu"), Name: "rabbitmq-away", Severity: Trouble},
		{Area: areaCoordinator, Subject: cause.BrokerSubject("us"), Name: "rabbitmq-away", Severity: Trouble},
		{Area: areaCoordinator, Name: "redis-memory", Severity: Warning},
		{Area: areaCoordinator, Name: "messages-stuck", Severity: Trouble},
		{Area: areaRedis, Name: "redis-disk", Severity: Trouble},
		{Area: areaRedis, Name: "redis-full", Severity: Trouble},
	}
	var got []string
	for _, f := range folded(found) {
		got = append(got, f.Area+" "+f.Name+" <"+f.Follows)
	}
	if want := []string{
		"rabbitmq  <", "rabbitmq rabbitmq-alarm <", "coordinator messages-stuck <rabbitmq-alarm",
		"broker eu rabbitmq-away <", "coordinator rabbitmq-away <", "redis redis-disk <",
		"coordinator redis-memory <redis-disk", "redis redis-full <redis-disk",
	}; !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
