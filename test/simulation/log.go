package simulation

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

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
