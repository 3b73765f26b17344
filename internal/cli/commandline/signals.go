package commandline

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// errStoppedAtOnce is the end of those who are asked twice.
var errStoppedAtOnce = errors.New("stopped at once by a second signal; what was in hand is picked up when its lease ends")

// stopSignals are the signals that end a command. SIGHUP is one of them, because a terminal that closes sends it, unless the
// process was started with SIGHUP ignored, as nohup does: then it stays ignored.
func stopSignals() []os.Signal {
	signals := []os.Signal{syscall.SIGTERM, os.Interrupt}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// Interruptible is a context that the first stop signal ends, for commands that have nothing in hand for others.
func Interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, stopSignals()...)
}

// Hangup decides whether a SIGHUP stops a command.
type Hangup func() (stops bool)

// AlwaysStop is the Hangup of a command that somebody watches.
func AlwaysStop() bool { return true }

// TerminalClosed returns the Hangup of a daemon. A SIGHUP stops the daemon only if its controlling terminal has closed since
// this call: the terminal's user has left. Every other SIGHUP was sent by somebody who expects a daemon to reload.
func TerminalClosed() Hangup {
	before := hasTerminal()
	return func() bool { return before && !hasTerminal() }
}

// hasTerminal says whether the process has a controlling terminal. The kernel takes a terminal that closes away before it
// sends SIGHUP.
func hasTerminal() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	_ = tty.Close() // nothing was written
	return true
}

// UntilSignalled runs serve with a context that the first SIGTERM or SIGINT ends, or a SIGHUP for which stops says so. A
// second SIGTERM or SIGINT does not wait for serve. A second SIGHUP changes nothing: the kernel and the shell both send one
// when a terminal closes.
func UntilSignalled(
	ctx context.Context, logger *slog.Logger, stops Hangup, serve func(context.Context) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, stopSignals()...)
	defer signal.Stop(signals)
	served := make(chan error, 1)
	go func() { served <- serve(ctx) }()
	for stopping := false; ; {
		select {
		case err := <-served:
			return err
		case got := <-signals:
			switch {
			case got == syscall.SIGHUP && stopping:
				continue
			case got == syscall.SIGHUP && !stops():
				logger.Info("SIGHUP changes nothing: the configuration is read at start only, and certificates are read again by " +
					"themselves when they change; restart to change the configuration")
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
