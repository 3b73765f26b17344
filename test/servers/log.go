package servers

import (
	"strings"
	"sync"
)

// Log keeps what is written to it, for a test that reads the lines of a log. Its methods are safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer. It never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
