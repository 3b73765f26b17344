package commandline

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"syscall"
	"testing"

	"github.com/msghandler/msghandler/test/must"
)

// signalSelf sends this process a signal, as an operator would. Nothing else in this package listens for signals
// meanwhile: the test is not parallel.
func signalSelf(t *testing.T) {
	t.Helper()
	self, err := os.FindProcess(os.Getpid())
	must.Succeed(t, err)
	must.Succeed(t, self.Signal(syscall.SIGTERM))
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	t.Run("first", func(t *testing.T) {
		err := UntilSignalled(t.Context(), quiet, AlwaysStop, func(ctx context.Context) error {
			signalSelf(t)
			<-ctx.Done()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("second", func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		err := UntilSignalled(t.Context(), quiet, AlwaysStop, func(ctx context.Context) error {
			signalSelf(t)
			<-ctx.Done()
			signalSelf(t)
			<-release
			return nil
		})
		if !errors.Is(err, errStoppedAtOnce) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a part fails", func(t *testing.T) {
		broken := errors.New("broken")
		err := UntilSignalled(t.Context(), quiet, AlwaysStop, func(context.Context) error { return broken })
		if !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	})
}
