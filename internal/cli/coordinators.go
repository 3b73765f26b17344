package cli

import (
	"cmp"
	"strconv"
	"time"

	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// coordinator is a coordinator of stats in --output json. The names of its fields are part of the product.
type coordinator struct {
	Instance    string     `json:"instance"`
	Version     string     `json:"version"`
	State       string     `json:"state"`
	GRPCAddress string     `json:"grpc_address"`
	HTTPAddress string     `json:"http_address"`
	Place       string     `json:"place"`
	StartedAt   *time.Time `json:"started_at,omitempty"`
	SeenAt      *time.Time `json:"seen_at,omitempty"`
	// Restarts counts the starts at its place within the last hour, beyond the first.
	Restarts   int64  `json:"restarts"`
	ConfigHash string `json:"config_hash,omitempty"`
	// Self is the coordinator that answered.
	Self bool `json:"self"`
}

func newCoordinators(all []*adminv1.Coordinator) []coordinator {
	coordinators := make([]coordinator, len(all))
	for i, c := range all {
		coordinators[i] = coordinator{
			Instance: c.GetInstance(), Version: c.GetVersion(), State: operate.Word(c.GetState()),
			GRPCAddress: c.GetGrpcAddress(),
			HTTPAddress: c.GetHttpAddress(), Place: c.GetPlace(), StartedAt: moment(c.GetStartTime()),
			SeenAt: moment(c.GetLastSeenTime()), Restarts: c.GetRestarts(), ConfigHash: c.GetConfigHash(), Self: c.GetSelf(),
		}
	}
	return coordinators
}

// coordinatorRows are the rows of the running and missing coordinators. Those that stopped are left to --output json.
func coordinatorRows(all []*adminv1.Coordinator, now time.Time) [][]string {
	rows := [][]string{{"COORDINATOR", "STATE", "VERSION", "STARTED", "SEEN", "RESTARTS", "CONFIG"}}
	for _, c := range all {
		if c.GetState() == adminv1.CoordinatorState_COORDINATOR_STATE_STOPPED {
			continue
		}
		rows = append(rows, []string{
			c.GetInstance(), operate.Word(c.GetState()), c.GetVersion(), ageOf(c.GetStartTime(), now),
			ageOf(c.GetLastSeenTime(), now),
			strconv.FormatInt(c.GetRestarts(), 10), cmp.Or(c.GetConfigHash(), "-"),
		})
	}
	return rows
}
