package commandline

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// errStoppedAtOnce is the error of a command that a second signal ends.
var errStoppedAtOnce = errors.New("stopped at once by a second signal; " +
	"unfinished messages are picked up when their leases end")

// stopSignals are the signals that end a command. SIGHUP is among them, because a terminal that closes sends SIGHUP.
// A process that was started with SIGHUP ignored, as by nohup, goes on ignoring SIGHUP.
func stopSignals() []os.Signal {
	signals := []os.Signal{syscall.SIGTERM, os.Interrupt}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// Interruptible is a context that the first stop signal ends, for commands that hold no messages.
func Interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, stopSignals()...)
}

// Hangup decides whether a SIGHUP stops a command.
type Hangup func() (stops bool)

// AlwaysStop is the Hangup of a command that a person watches.
func AlwaysStop() bool { return true }

// TerminalClosed returns the Hangup of a daemon. A SIGHUP stops the daemon only if its controlling terminal has closed
// since this call: the terminal's user has left. The sender of every other SIGHUP expects a daemon to reload. reload
// must not block.
func TerminalClosed(reload func()) Hangup {
	before := hasTerminal()
	return func() bool {
		if before && !hasTerminal() {
			return true
		}
		reload()
		return false
	}
}

// hasTerminal says whether the process has a controlling terminal. When a terminal closes, the kernel detaches the
// terminal first and then sends SIGHUP.
func hasTerminal() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	_ = tty.Close() // nothing was written
	return true
}

// UntilSignalled runs serve with a context that the first SIGTERM or SIGINT ends, or a SIGHUP that stops accepts. After
// a second SIGTERM or SIGINT, UntilSignalled returns without waiting for serve, and the process ends. A second SIGHUP
// changes nothing: the kernel and the shell both send a SIGHUP when a terminal closes.
func UntilSignalled(
	ctx context.Context, logger *slog.Logger, stops Hangup, serve func(context.Context) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, stopSignals()...)
	defer signal.Stop(signals)
	served := make(chan error, 1)
	var serving lifecycle.Group
	serving.Go(func() { served <- serve(ctx) })
	for stopping := false; ; {
		select {
		case err := <-served:
			return err
		case got := <-signals:
			switch {
			case got == syscall.SIGHUP && stopping:
				continue
			case got == syscall.SIGHUP && !stops():
				continue
			case stopping:
				return errStoppedAtOnce
			}
			logger.Info("stopping; a second signal ends the process at once", "signal", got.String())
			stopping = true
			cancel()
		}
	}
}
