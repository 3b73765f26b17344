package cli

import (
	"cmp"
	"strconv"
	"strings"
	"time"

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
			Instance: c.GetInstance(), Version: c.GetVersion(), State: coordinatorState(c), GRPCAddress: c.GetGrpcAddress(),
			HTTPAddress: c.GetHttpAddress(), Place: c.GetPlace(), StartedAt: moment(c.GetStartTime()),
			SeenAt: moment(c.GetSeenTime()), Restarts: c.GetRestarts(), ConfigHash: c.GetConfigHash(), Self: c.GetSelf(),
		}
	}
	return coordinators
}

// coordinatorState is running, missing or stopped.
func coordinatorState(c *adminv1.Coordinator) string {
	return strings.ToLower(strings.TrimPrefix(c.GetState().String(), "COORDINATOR_STATE_"))
}

// coordinatorRows are the rows of the running and missing coordinators. Those that stopped are left to --output json.
func coordinatorRows(all []*adminv1.Coordinator, now time.Time) [][]string {
	rows := [][]string{{"COORDINATOR", "STATE", "VERSION", "STARTED", "SEEN", "RESTARTS", "CONFIG"}}
	for _, c := range all {
		if c.GetState() == adminv1.CoordinatorState_COORDINATOR_STATE_STOPPED {
			continue
		}
		rows = append(rows, []string{
			c.GetInstance(), coordinatorState(c), c.GetVersion(), ageOf(c.GetStartTime(), now), ageOf(c.GetSeenTime(), now),
			strconv.FormatInt(c.GetRestarts(), 10), cmp.Or(c.GetConfigHash(), "-"),
		})
	}
	return rows
}
