package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/must"
)

// GetConfiguration returns the planted configuration.
func (c *coordinator) GetConfiguration(
	context.Context, *adminv1.GetConfigurationRequest,
) (*adminv1.GetConfigurationResponse, error) {
	return c.configuration, c.err
}

func TestTheConfigurationInUseIsPrinted(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	c.configuration = &adminv1.GetConfigurationResponse{Instance: "a-1", Version: "v1"}
	c.configuration.Values = []*adminv1.ConfigurationValue{
		{Key: "confirm.after", Value: "2s", DefaultValue: "6s", Origin: "msghandler.yaml:3", NeedsRestart: true},
		{Key: "log.level", Value: "info", DefaultValue: "info"},
		{Key: "producers.orders.target", Value: "orders:9000", Origin: "msghandler.yaml:9"},
	}
	run(nil, "config", "--server="+c.addr).want(t, 0, "KEY                       VALUE         FROM\n"+
		"confirm.after             2s            msghandler.yaml:3\n"+
		"producers.orders.target   orders:9000   msghandler.yaml:9\n", "")
	run(nil, "config", "--all", "--server="+c.addr).want(t, 0, "log.level                 info          default\n", "")
	run(nil, "config", "--output=json", "--server="+c.addr).want(t, 0, `"origin": "msghandler.yaml:3",
      "needs_restart": true`, "")
	file := filepath.Join(t.TempDir(), "msghandler.yaml")
	write := func(text string) {
		t.Helper()
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("grpc: {addr: \"127.0.0.1:9190\"}\nconfirm: {after: 2s}\nproducers: {orders: {target: \"orders:9000\"}}\n")
	run(nil, "config", "--diff="+file, "--server="+c.addr).want(t, 0, "KEY   RUNNING   FILE   RUNNING VALUE FROM\n", "")
	write("log: {level: debug}\nproducers: {stock: {target: \"stock:9000\"}}\n")
	run(nil, "config", "--diff="+file, "--server="+c.addr).want(t, 1,
		"KEY                       RUNNING       FILE         RUNNING VALUE FROM\n"+
			"confirm.after             2s            6s           msghandler.yaml:3\n"+
			"log.level                 info          debug        default\n"+
			"producers.orders.target   orders:9000   -            msghandler.yaml:9\n"+
			"producers.stock.target    -             stock:9000   default\n",
		"the coordinator's configuration differs from the file")
	write("no: such\n")
	run(nil, "config", "--diff="+file, "--server="+c.addr).want(t, 2, "", "no")
}

func TestStatsShowsCoordinators(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	ago := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(-d)) }
	c.fleet = []*adminv1.Coordinator{
		{
			Instance: "a-1", Version: "v1", State: adminv1.CoordinatorState_COORDINATOR_STATE_RUNNING, Self: true,
			StartTime: ago(3*time.Hour + time.Minute), LastSeenTime: ago(3*time.Minute + time.Second),
			Restarts: 2, ConfigHash: "abc",
		},
		{
			Instance: "b-2", Version: "v0", State: adminv1.CoordinatorState_COORDINATOR_STATE_MISSING,
			StartTime: ago(5*time.Hour + time.Minute), LastSeenTime: ago(4*time.Minute + time.Second),
		},
		{Instance: "c-3", Version: "v0", State: adminv1.CoordinatorState_COORDINATOR_STATE_STOPPED},
	}
	said := run(nil, "stats", "--server="+c.addr)
	said.want(t, 0, "COORDINATOR   STATE     VERSION   STARTED   SEEN        RESTARTS   CONFIG\n"+
		"a-1           running   v1        3 h ago   3 min ago   2          abc\n"+
		"b-2           missing   v0        5 h ago   4 min ago   0          -\n", "")
	run(nil, "stats", "--output=json", "--server="+c.addr).want(t, 0, `"instance": "c-3",
      "version": "v0",
      "state": "stopped"`, "")
}
