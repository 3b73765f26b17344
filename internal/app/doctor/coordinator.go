package doctor

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
	"github.com/msghandler/msghandler/proto/certs"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

const areaCoordinator = "coordinator"

// longWaiting is for how long a message may be due for publishing before the doctor reports the message as stuck.
const longWaiting = time.Minute

func examineCoordinator(ctx context.Context, e Examination) []Finding {
	defer close(e.seen.examined)
	r := report{area: areaCoordinator}
	conn, err := e.dial()
	if err != nil {
		r.trouble("coordinator-address", fmt.Sprintf("%q is no address: %v", e.Coordinator.Address, err),
			"producers cannot reach it", "write host:port")
		return r.all
	}
	defer conn.Close()
	var with peer.Peer
	health, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.Peer(&with))
	if err != nil {
		r.away(e.Coordinator, err)
		return r.all
	}
	e.noteCoordinator(&with)
	if got := health.GetStatus(); got != healthv1.HealthCheckResponse_SERVING {
		r.trouble("coordinator-not-serving", fmt.Sprintf("at %s says that it is %s", e.Coordinator.Address, got),
			"it takes no messages", "look at /readyz of its http.addr, which says what it waits for")
		return r.all
	}
	stats, err := adminv1.NewAdminServiceClient(conn).GetStats(ctx, &adminv1.GetStatsRequest{})
	if refuses(err) {
		r.refuses(e.Coordinator, err)
		return r.all
	}
	if err != nil {
		r.trouble("coordinator-mute", fmt.Sprintf("at %s cannot count its messages: %v", e.Coordinator.Address, err),
			"its store does not answer", "look at the findings about redis")
		return r.all
	}
	e.seen.stats = stats
	r.findings(stats.GetFindings(), time.Now())
	r.waiting(stats.GetStates(), time.Now())
	r.failing(ctx, adminv1.NewAdminServiceClient(conn), stats.GetStates())
	return r.orOK("serves at " + e.Coordinator.Address + ", and no message waits for an operator")
}

// refuses says whether a coordinator refuses its caller.
func refuses(err error) bool {
	code := status.Code(err)
	return code == codes.Unauthenticated || code == codes.PermissionDenied
}

func (r *report) refuses(at Coordinator, err error) {
	r.warn("coordinator-refuses", fmt.Sprintf("at %s refuses the doctor: %s", at.Address, status.Convert(err).Message()),
		"the doctor sees no counts, no findings of coordinators and no producer that attends",
		"show it the token of a viewer with --token-file, or a certificate that access.viewers matches with --tls-cert")
}

// dial returns a connection to the coordinator. The connection begins with the first call.
func (e *Examination) dial() (*grpc.ClientConn, error) {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(cmp.Or(e.Coordinator.Credentials, insecure.NewCredentials())), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	}
	if e.Coordinator.Token != nil {
		options = append(options, grpc.WithPerRPCCredentials(e.Coordinator.Token))
	}
	return grpc.NewClient(e.Coordinator.Address, options...)
}

// maxAnswer is the largest answer taken: a page of messages with all their headers fits.
const maxAnswer = 64 << 20

// away says why no coordinator answers: the remedy for a hanging coordinator differs from the remedy for a missing
// process.
func (r *report) away(at Coordinator, err error) {
	st, server := status.Convert(err), at.Address
	what := "none answers at " + server + ": " + st.Message()
	// A coordinator that is not ready closes each connection, which gRPC reports in several ways.
	const waits = "if it runs, its log and /readyz of its http.addr say what it waits for; "
	remedy := waits + "else start msghandler serve, restart one that hangs, or name another with --server"
	switch {
	case st.Code() == codes.Unimplemented:
		what = "the server at " + server + " is no coordinator: " + st.Message()
	case st.Code() == codes.DeadlineExceeded:
		what = "none answers at " + server + ", though something may listen there: " + st.Message()
	case strings.Contains(st.Message(), "certificate has expired"):
		remedy = "renew the certificate of its grpc.tls_cert, and put the new files in the place of the old ones: " +
			"they are read again within seconds"
	case certs.Unmet(st.Message()):
		remedy = waits + "if it is ready, talk to it as it wants: --tls, and the flags beside it, or none of them" + at.Hint
	}
	r.warn("coordinator-away", what, "if it should run, producers get no answer either", remedy)
}

// waiting finds messages that wait for an operator, or for too long.
func (r *report) waiting(states []*adminv1.StateStats, now time.Time) {
	for _, s := range states {
		n, due := s.GetCount(), s.GetFirstDueTime()
		if n == 0 {
			continue
		}
		switch halfmsg.State(s.GetState()) { //nolint:gosec // states are few
		case halfmsg.Dead:
			r.warn("messages-dead", fmt.Sprintf("%d messages are dead", n),
				"the broker refused them at every try, and they are not delivered",
				"msghandler list --state dead shows why; fix the cause, then msghandler retry --state dead")
		case halfmsg.Abandoned:
			r.warn("messages-abandoned", fmt.Sprintf("%d messages are abandoned", n),
				"their producers never said whether they committed",
				"msghandler list --state abandoned shows the causes; ask the producer's team, then retry or discard them")
		case halfmsg.Sendable:
			if late := now.Sub(due.AsTime()); due != nil && late > longWaiting {
				r.warn(
					"messages-stuck",
					fmt.Sprintf("of %d sendable messages the first has been due for %s", n, operate.Duration(late)),
					"it should have been published by now",
					"look at the findings about rabbitmq; msghandler list --state sendable "+
						"shows the last errors",
				)
			}
		}
	}
}
