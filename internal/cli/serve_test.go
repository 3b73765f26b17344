package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/msghandler/msghandler/internal/config"
)

// signalSelf sends this process a signal, as an operator would. Nothing else in this package listens for signals
// meanwhile: the test is not parallel.
func signalSelf(t *testing.T) {
	t.Helper()
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

func TestTheFirstSignalStopsAndTheSecondOneEnds(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	t.Run("first", func(t *testing.T) {
		err := untilSignalled(t.Context(), quiet, alwaysStop, func(ctx context.Context) error {
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
		err := untilSignalled(t.Context(), quiet, alwaysStop, func(ctx context.Context) error {
			signalSelf(t)
			<-ctx.Done()
			signalSelf(t)
			<-release
			return nil
		})
		if !errors.Is(err, errHurried) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a part fails", func(t *testing.T) {
		broken := errors.New("broken")
		if err := untilSignalled(t.Context(), quiet, alwaysStop, func(context.Context) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	})
}

func TestLogLinesAsConfigured(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"json": `"msg":"seen"`, "text": "msg=seen"} {
		var b bytes.Buffer
		logger := newLogger(&b, config.Log{Level: "warn", Format: format})
		logger.Info("not seen")
		logger.Warn("seen")
		if out := b.String(); !strings.Contains(out, want) || strings.Contains(out, "not seen") {
			t.Errorf("%s: %s", format, out)
		}
	}
}

func TestEveryKeyIsAFlag(t *testing.T) {
	t.Parallel()
	flags := newConfigFlags()
	if given := flags.given(); len(given) != 0 {
		t.Errorf("nothing was typed, but %v is given", given)
	}
	for i, k := range flags.keys {
		field := flags.fields.Elem().Type().Field(i)
		if name := field.Tag.Get("name"); name != k.Name {
			t.Errorf("the flag of %s is called %q", k.Name, name)
		}
	}
}
