package msghandlertest

import (
	"io"
	"sync"
)

// testLog writes to the output of a test until the test ends: a write after that panics. A part that was killed may
// still have a line to write.
type testLog struct {
	mu sync.Mutex
	to io.Writer
}

func (l *testLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.to == nil {
		return len(line), nil
	}
	return l.to.Write(line)
}

func (l *testLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = nil
}
