package cli_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

func TestStatsShowSumsOfCoordinators(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	now := timestamppb.New(time.Now().Add(-time.Hour - time.Minute))
	const refused = "Confirm of producer billing at dns:///billing:9000: Unavailable: connection error: " +
		`desc = "transport: Error while dialing: dial tcp 10.0.0.7:9000: connect: connection refused"`
	c.sums = &adminv1.GetStatsResponse{
		Flow: &adminv1.FlowStats{
			CoordinatorCount: 3, StoredPerSecond: 1420.4, AcknowledgedPerSecond: 7.25,
			LatencyP50: durationpb.New(31 * time.Millisecond),
		},
		Producers: []*adminv1.ProducerStats{
			{
				Name: "billing", CoordinatorCount: 3, OpenCircuits: 1, StoredTotal: 9, RefusedPerSecond: .5,
				LastFailureTime: now, LastFailure: refused,
			},
			{
				Name: "orders", CoordinatorCount: 3, LastAnswerTime: now, LastAnswerLatency: durationpb.New(4 * time.Millisecond),
				LastVerdict: msghandlerv1.Verdict_VERDICT_COMMITTED,
			},
		},
		Exchanges: []*adminv1.ExchangeStats{{Broker: "events", Name: "shop", AcknowledgedTotal: 12, RefusedTotal: 1}},
	}
	said := run(nil, "stats", "--server="+c.addr)
	for _, want := range []string{
		"\n\nIN/S   OUT/S   REFUSED/S   P50     P99   OF COORDINATORS\n1420   7.2     0           31 ms   -     3\n\n",
		"billing    open at 1 of 3   0      0       -          -           1 h ago: Unavailable: connection refused\n",
		"orders     closed           0      0       1 h ago    COMMITTED   -\n\n",
		"shop       events   0       12             1         -\n",
	} {
		if said.status != 0 || !strings.Contains(said.out, want) {
			t.Errorf("the output lacks %q:\n%s", want, said.out)
		}
	}
	var document struct {
		Flow                 map[string]any
		Producers, Exchanges []map[string]any
	}
	said = run(nil, "stats", "--output=json", "--server="+c.addr)
	if err := json.Unmarshal([]byte(said.out), &document); err != nil || len(document.Producers) != 2 {
		t.Fatalf("%v: %s", err, said.out)
	}
	billing, orders, shop := document.Producers[0], document.Producers[1], document.Exchanges[0]
	if document.Flow["stored_per_second"] != 1420.4 || document.Flow["latency_p50_seconds"] != .031 ||
		document.Flow["latency_p99_seconds"] != nil || document.Flow["coordinators"] != 3. ||
		billing["open_circuits"] != 1. || billing["refused_per_second"] != .5 ||
		billing["failure"] != refused || billing["answered_at"] != nil ||
		orders["verdict"] != "COMMITTED" || orders["answer_took_seconds"] != .004 ||
		shop["broker"] != "events" || shop["acknowledged"] != 12. || shop["refused"] != 1. {
		t.Errorf("the document is %s", said.out)
	}
}
