package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// tap reads one direction of one connection, piece by piece. The two directions have a goroutine each.
type tap interface {
	// next returns the next piece unchanged, and its events; an event without a name is of no interest.
	next(phase Phase, from *bufio.Reader) (raw []byte, events []Event, err error)
}

// blind is a tap that sees bytes.
type blind struct{}

func (blind) next(_ Phase, from *bufio.Reader) ([]byte, []Event, error) {
	if _, err := from.Peek(1); err != nil {
		return nil, nil, err
	}
	raw := make([]byte, from.Buffered())
	_, err := io.ReadFull(from, raw)
	return raw, nil, err
}

// rewriter is a tap that replaces a text in the server's bytes.
type rewriter struct {
	blind
	from, to []byte
}

func (r rewriter) next(phase Phase, from *bufio.Reader) ([]byte, []Event, error) {
	raw, events, err := r.blind.next(phase, from)
	if phase == Reply {
		raw = bytes.ReplaceAll(raw, r.from, r.to)
	}
	return raw, events, err
}

// link is one connection through a proxy.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	tap            tap
	muted          atomic.Bool
}

// mute lets nothing pass any more, and closes nothing.
func (l *link) mute() { l.muted.Store(true) }

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// pump passes on the bytes of one direction until the connection ends.
func (l *link) pump(phase Phase, from io.Reader, to io.Writer) {
	defer l.close()
	reader := bufio.NewReaderSize(from, 64<<10)
	for {
		raw, events, err := l.tap.next(phase, reader)
		if err != nil {
			l.complain(err)
			return
		}
		if phase == Request {
			l.proxy.received.Add(int64(len(raw)))
		}
		act := l.decide(events)
		if act == Cut {
			return
		}
		if act == Drop || !l.admit() {
			continue
		}
		if _, err := to.Write(raw); err != nil {
			return
		}
	}
}

// complain fails the test when the tap did not understand the traffic.
func (l *link) complain(err error) {
	var strange *strangeError
	if errors.As(err, &strange) {
		l.proxy.t.Errorf("a proxy in front of %s: %v", l.proxy.target, err)
	}
}

// decide asks the hook about each event. The first act but Pass is that of the whole piece.
func (l *link) decide(events []Event) Act {
	l.proxy.mu.Lock()
	hook := l.proxy.hook
	l.proxy.mu.Unlock()
	decided := Pass
	for _, event := range events {
		if hook == nil || event.Name == "" || l.muted.Load() {
			continue
		}
		if act := hook(event); decided == Pass {
			decided = act
		}
	}
	if decided == Silence {
		l.mute()
	}
	return decided
}

// admit waits for as long as things are held back, and says whether to pass this on at all.
func (l *link) admit() bool {
	for {
		l.proxy.mu.Lock()
		held, changed, delay := l.proxy.mode == holding, l.proxy.changed, l.proxy.delay
		l.proxy.mu.Unlock()
		if held {
			<-changed
			continue
		}
		if delay > 0 {
			time.Sleep(delay)
		}
		return !l.muted.Load()
	}
}

// strangeError is traffic that a tap does not understand.
type strangeError struct{ what string }

// Error implements error.
func (e *strangeError) Error() string { return "not understood: " + e.what }
