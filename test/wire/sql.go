package wire

import (
	"bufio"
	"bytes"
	"sync/atomic"
	"testing"
)

// SQL stands in front of a PostgreSQL, MySQL or MariaDB server, without TLS. Its events are commits.
func SQL(t testing.TB, addr string) *Proxy {
	t.Helper()
	return start(t, addr, func() tap { return &sqlTap{} })
}

// sqlTap sees bytes, and among them one interesting statement: drivers send COMMIT by itself, and wait.
type sqlTap struct {
	blind
	committing atomic.Bool
}

func (s *sqlTap) next(phase Phase, from *bufio.Reader) ([]byte, []Event, error) {
	raw, events, err := s.blind.next(phase, from)
	if err != nil {
		return raw, events, err
	}
	if phase == Request && commits(raw) {
		s.committing.Store(true)
		events = []Event{{Name: "commit", Phase: Request}}
	}
	if phase == Reply && s.committing.Swap(false) {
		events = []Event{{Name: "commit", Phase: Reply}}
	}
	return raw, events, nil
}

// commits says whether a request ends with the statement COMMIT; to PostgreSQL a zero follows.
func commits(raw []byte) bool {
	const statement = "commit"
	raw = bytes.TrimSuffix(raw, []byte{0})
	return len(raw) > len(statement) && bytes.EqualFold(raw[len(raw)-len(statement):], []byte(statement))
}
