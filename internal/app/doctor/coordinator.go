package doctor

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/msghandler/msghandler/internal/halfmsg"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const areaCoordinator = "coordinator"

// longWaiting is how long a message may be due for publishing before it looks stuck.
const longWaiting = time.Minute

func examineCoordinator(ctx context.Context, e Examination) []Finding {
	conn, err := grpc.NewClient(e.Server, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return []Finding{{
			areaCoordinator, Trouble, fmt.Sprintf("%q is no address: %v", e.Server, err), "producers cannot reach it",
			"write host:port",
		}}
	}
	defer conn.Close()
	health, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		return []Finding{{
			areaCoordinator, Warning, "none answers at " + e.Server, "if it should run, producers get no answer either",
			"start msghandler serve, or name another with --server",
		}}
	}
	if got := health.GetStatus(); got != healthv1.HealthCheckResponse_SERVING {
		return []Finding{{
			areaCoordinator, Trouble, fmt.Sprintf("at %s says that it is %s", e.Server, got), "it takes no messages",
			"look at /readyz of its http.addr, which says what it waits for",
		}}
	}
	stats, err := pb.NewAdminServiceClient(conn).GetStats(ctx, &pb.GetStatsRequest{})
	if err != nil {
		return []Finding{{
			areaCoordinator, Trouble, fmt.Sprintf("at %s cannot count its messages: %v", e.Server, err),
			"its store does not answer", "look at what is found about redis",
		}}
	}
	found := waiting(stats.GetStates(), time.Now())
	if len(found) == 0 {
		found = append(found, Finding{Area: areaCoordinator, What: "serves at " + e.Server + ", and nothing waits for somebody to act"})
	}
	return found
}

// waiting finds messages that wait for a person, or for longer than they should.
func waiting(states []*pb.StateStats, now time.Time) (found []Finding) {
	warn := func(what, why, remedy string) {
		found = append(found, Finding{areaCoordinator, Warning, what, why, remedy})
	}
	for _, s := range states {
		n, oldest := s.GetCount(), s.GetOldestCreateTime()
		if n == 0 {
			continue
		}
		switch halfmsg.State(s.GetState()) {
		case halfmsg.Dead:
			warn(fmt.Sprintf("%d messages are dead", n), "the broker refused them to the last, and nobody delivers them",
				"msghandler list --state dead shows why; mend it, then msghandler retry --state dead")
		case halfmsg.Abandoned:
			warn(fmt.Sprintf("%d messages are abandoned", n), "their producers never said whether they committed",
				"msghandler list --state abandoned; ask the producer's team, then retry or discard them")
		case halfmsg.Sendable:
			if age := now.Sub(oldest.AsTime()); age > longWaiting {
				warn(fmt.Sprintf("of %d sendable messages the oldest was stored %v ago", n, age.Round(time.Second)),
					"unless it has a delay, it should have been delivered", "msghandler list --state sendable shows the last error")
			}
		}
	}
	return found
}
