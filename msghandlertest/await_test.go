package msghandlertest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The last look is cut short by the end of the time, which is not the reason of the failure.
func TestAwaitReportsTheReason(t *testing.T) {
	t.Parallel()
	looks := []error{errors.New("orders/1001 waits"), status.Error(codes.DeadlineExceeded, "context deadline exceeded")}
	err := await(20*time.Millisecond, "every message is decided", func(context.Context) error {
		look := looks[0]
		looks = looks[min(1, len(looks)-1):]
		return look
	})
	if err == nil || !strings.Contains(err.Error(), "orders/1001 waits") {
		t.Errorf("the error is %v", err)
	}
}
