package languages

import (
	"net/http"

	"github.com/msghandler/msghandler/test/wire"
)

// diesAnywhere kills the program once, while orders stand at each step: stored and not begun, inside the transaction,
// committed and not submitted, submitted without an answer, failed and not rolled back. A later program of the same
// name answers for all of them.
func (s *shop) diesAnywhere() {
	lock := s.begin(`INSERT INTO orders (id, amount) VALUES ('killed-inside', 1)`)
	steps := []struct {
		id, call string
		amount   int
		// stands is the verdict after the death, and status the answer to a client that repeats the order.
		stands string
		status int
	}{
		{"killed-stored", "SendHalfMessage after", 1, "ROLLED_BACK", http.StatusConflict},
		{"killed-inside", "", 2, "ROLLED_BACK", http.StatusConflict},
		{"killed-committed", "Submit before", 3, "COMMITTED", http.StatusOK},
		{"killed-submitted", "Submit after", 4, "COMMITTED", http.StatusOK},
		{"killed-failed", "Rollback before", -5, "ROLLED_BACK", http.StatusConflict},
	}
	for _, step := range steps {
		if step.call == "" {
			s.ordering(step.id, step.amount)
			s.blocked()
			continue
		}
		reached, act := s.holds(step.call, step.id)
		s.ordering(step.id, step.amount)
		s.wait(reached, step.call+" of "+step.id)
		defer func() { act <- wire.Cut }()
	}
	s.program.kill()
	if err := lock.Rollback(); err != nil {
		s.Fatal(err)
	}
	s.start()
	s.balanced()
	for _, step := range steps {
		s.stands(step.id, step.stands)
		stands := "VERDICT_" + step.stands
		s.ordered(step.id, step.amount, step.status, stands)
	}
}
