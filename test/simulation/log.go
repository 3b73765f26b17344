package simulation

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// beforeTimeout is how long before the time limit of its package a run that goes on is told of.
const beforeTimeout = 10 * time.Second

// tellOfHang prints the seed and the end of the log of a run that goes on shortly before the time limit of its package,
// when go test ends the process and prints the stacks alone. The result ends the watch. The watch is no part of the
// bubble, whose clock stands still while a goroutine waits for a mutex.
func tellOfHang(t *testing.T, seed uint64, of *atomic.Pointer[worldLog]) (end func()) {
	limit, limited := t.Deadline()
	if !limited {
		return func() {}
	}
	timer := time.AfterFunc(time.Until(limit)-beforeTimeout, func() {
		log := "a goroutine writes into it, or there is none"
		if l := of.Load(); l != nil && l.mu.TryLock() {
			log = string(l.kept.Bytes()[max(0, l.kept.Len()-mostHangLog):])
			l.mu.Unlock()
		}
		_, _ = fmt.Fprintf(os.Stderr, "\nHANGS: seed %d goes on %v before the time limit; the end of its log:\n%s\n", seed,
			beforeTimeout, log)
	})
	return func() { timer.Stop() }
}

// mostHangLog bounds the printed end of the log of a run that hangs.
const mostHangLog = 32 << 10

// mostLog bounds the kept end of a log.
const mostLog = 256 << 10

// worldLog keeps the end of the log lines of all programs, for the report of a failure.
type worldLog struct {
	begun time.Time
	level slog.Level
	mu    sync.Mutex
	kept  bytes.Buffer
	live  io.Writer
}

// Write implements io.Writer.
func (l *worldLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live != nil {
		_, _ = l.live.Write(b)
	}
	if l.kept.Len() > 2*mostLog {
		l.kept.Next(mostLog)
	}
	return l.kept.Write(b)
}

func (l *worldLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.String()
}

// handler writes the lines of a program.
func (l *worldLog) handler(host string) slog.Handler {
	options := &slog.HandlerOptions{Level: l.level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey:
			return slog.String("at", fmt.Sprintf("%.6f", a.Value.Time().Sub(l.begun).Seconds()))
		case "coordinator":
			return slog.Attr{}
		}
		return a
	}}
	return slog.NewTextHandler(l, options).WithAttrs([]slog.Attr{slog.String("host", host)})
}
