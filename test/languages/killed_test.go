package languages

import (
	"net/http"

	"github.com/msghandler/msghandler/test/wire"
)

// deadly are the steps at which the program dies with an order in hand.
var deadly = []struct {
	id     string
	amount int
	// stands is the verdict after the death, and status the answer to a client that repeats the order.
	stands string
	status int
	// holds holds the order at the step.
	holds func(s *shop, id string) (reached <-chan struct{}, act chan<- wire.Act)
}{
	// The first two come before any other order is in hand, whose transactions would commit too.
	{"killed-ending", 1, "ROLLED_BACK", http.StatusConflict, atCommit(wire.Request)},
	{"killed-unanswered", 2, "COMMITTED", http.StatusOK, atCommit(wire.Reply)},
	{"killed-stored", 3, "ROLLED_BACK", http.StatusConflict, at("SendHalfMessage after")},
	{"killed-inside", 4, "ROLLED_BACK", http.StatusConflict, nil}, // its row waits for a lock
	{"killed-committed", 5, "COMMITTED", http.StatusOK, at("Submit before")},
	{"killed-submitted", 6, "COMMITTED", http.StatusOK, at("Submit after")},
	{"killed-failed", -7, "ROLLED_BACK", http.StatusConflict, at("Rollback before")},
}

// diesAnywhere kills the program once, while an order stands at each step. Nobody has asked about these orders before.
// A later program of the same name answers for all of them.
func (s *shop) diesAnywhere() {
	lock := s.begin(`INSERT INTO orders (id, amount) VALUES ('killed-inside', 1)`)
	var acts []chan<- wire.Act
	for _, step := range deadly {
		s.on("confirm before", step.id, func() wire.Act { return wire.Cut })
		if step.holds == nil {
			s.ordering(step.id, step.amount)
			s.blocked()
			continue
		}
		reached, act := step.holds(s, step.id)
		acts = append(acts, act)
		s.ordering(step.id, step.amount)
		s.wait(reached, step.id+" is where the program dies")
	}
	s.program.kill()
	for _, act := range acts {
		act <- wire.Cut
	}
	if err := lock.Rollback(); err != nil {
		s.Fatal(err)
	}
	for _, step := range deadly {
		s.on("confirm before", step.id, nil)
	}
	s.start()
	s.balanced()
	for _, step := range deadly {
		s.stands(step.id, step.stands)
		s.ordered(step.id, step.amount, step.status, "VERDICT_"+step.stands)
	}
	s.balanced()
}

func at(call string) func(s *shop, id string) (<-chan struct{}, chan<- wire.Act) {
	return func(s *shop, id string) (<-chan struct{}, chan<- wire.Act) { return s.holds(call, id) }
}

func atCommit(phase wire.Phase) func(s *shop, id string) (<-chan struct{}, chan<- wire.Act) {
	return func(s *shop, id string) (<-chan struct{}, chan<- wire.Act) { return s.holdsCommit(phase, id) }
}
