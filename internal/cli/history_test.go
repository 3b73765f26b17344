package cli_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

func (c *coordinator) GetFinished(
	_ context.Context, r *adminv1.GetFinishedRequest,
) (*adminv1.GetFinishedResponse, error) {
	if c.archive != nil {
		return nil, c.archive
	}
	return nil, status.Errorf(codes.NotFound, "no entry of %s/%s", r.GetProducer(), r.GetId())
}

// An archived message is not "never sent" because the archive cannot be read.
func TestShowReportsUnreadableArchive(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	run(nil, "show", "orders/9", "--server="+c.addr).want(t, 3, "", "it was never sent")
	c.archive = status.Error(codes.FailedPrecondition, "no archive")
	run(nil, "show", "orders/9", "--server="+c.addr).want(t, 3, "", "it was never sent")
	c.archive = status.Error(codes.DataLoss, "the archive cannot be read")
	run(nil, "show", "orders/9", "--server="+c.addr).want(t, 1, "", "the archive cannot be read")
	c.archive = status.Error(codes.Unimplemented, "unknown method GetFinished")
	run(nil, "show", "orders/9", "--server="+c.addr).want(t, 1, "", "lacks this command or flag; nothing was done")
}
