package modeldb

import "time"

// Faults decides what goes wrong with each call of a client. Trouble must not block, and is called by several
// goroutines.
type Faults interface{ Trouble(call Call) Trouble }

// Call is a call of a client on its way to a server.
type Call struct {
	// Server is the name of the server, and Step what the call does there.
	Server string
	Step   Step
	// InTransaction: the call is in a transaction that the client has begun.
	InTransaction bool
}

// Step is a kind of call.
type Step uint8

// The steps.
const (
	Connect Step = iota
	Begin
	Statement
	Commit
	Rollback
)

// Trouble is what goes wrong with a call. The zero value is nothing.
type Trouble struct {
	// Delay is how long the call is on its way, and AnswerDelay how long the answer is.
	Delay, AnswerDelay time.Duration
	// Cut ends the connection.
	Cut Cut
	// Lingers is how long the server does not notice the end of the connection: the locks of its transaction last. With
	// CutLate the server gets the call after this time.
	Lingers time.Duration
	// State is the SQLState of an error with which the server refuses the call; "57P01" ends the connection too. A COMMIT
	// that is refused has rolled back.
	State string
}

// Cut is when a connection ends, as its server sees it. The client gets the same error each time.
type Cut uint8

// The cuts.
const (
	// Uncut: the connection stays.
	Uncut Cut = iota
	// CutBefore: the server does not get the call.
	CutBefore
	// CutAfter: the server has done what was asked, and the answer is lost.
	CutAfter
	// CutLate: the server does what was asked after the client has got its error.
	CutLate
)

func (s *Server) trouble(step Step, inTransaction bool) Trouble {
	s.mu.Lock()
	faults := s.faults
	s.mu.Unlock()
	if faults == nil {
		return Trouble{}
	}
	return faults.Trouble(Call{s.name, step, inTransaction})
}
