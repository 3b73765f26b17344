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

// longestTransaction bounds what a tap keeps of a transaction, in bytes.
const longestTransaction = 64 << 10

// sqlTap sees bytes, and among them one interesting statement: drivers send COMMIT by itself, and wait.
type sqlTap struct {
	blind
	// sent is what the client has sent since the last COMMIT, as far as it is kept.
	sent []byte
	// committing is the transaction whose COMMIT has no reply yet, or nil.
	committing atomic.Pointer[[]byte]
}

func (s *sqlTap) next(phase Phase, from *bufio.Reader) ([]byte, []Event, error) {
	raw, events, err := s.blind.next(phase, from)
	if err != nil {
		return raw, events, err
	}
	if phase == Reply {
		if transaction := s.committing.Swap(nil); transaction != nil {
			events = []Event{{Name: "commit", Phase: Reply, Transaction: *transaction}}
		}
		return raw, events, nil
	}
	s.sent = append(s.sent, raw[:min(len(raw), longestTransaction-len(s.sent))]...)
	if commits(raw) {
		transaction := s.sent
		s.sent = nil
		s.committing.Store(&transaction)
		events = []Event{{Name: "commit", Phase: Request, Transaction: transaction}}
	}
	return raw, events, nil
}

// commits says whether a request ends with the statement COMMIT; to PostgreSQL a zero follows.
func commits(raw []byte) bool {
	const statement = "commit"
	raw = bytes.TrimSuffix(raw, []byte{0})
	return len(raw) > len(statement) && bytes.EqualFold(raw[len(raw)-len(statement):], []byte(statement))
}
