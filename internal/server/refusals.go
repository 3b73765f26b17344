package server

import (
	"errors"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// reasonInvalid is what a refusal is called that says which fields are wrong, and so needs no reason in its ErrorInfo.
const reasonInvalid = "INVALID_ARGUMENT"

// refuse answers a call of a producer that somebody must change something for: its team, or whoever configures this
// coordinator. The caller hears why; without this nobody else would.
func (s *Server) refuse(producer string, err error) error {
	s.tellRefused(producer, err)
	return translate(err, halfmsg.None).Err()
}

// tellRefused tells of one call, or one message of a batch, that is refused.
func (s *Server) tellRefused(producer string, err error) {
	c := &check{}
	if c.producer("producer", producer); c.found != nil {
		producer = "" // it may hold anything
	}
	reason := reasonInvalid
	if !isInvalid(err) {
		reason = faultOf(err).reason
	}
	s.config.Refused(producer, reason, cut(err.Error())) // both kinds are in words fit for the caller
}

func isInvalid(err error) bool {
	var invalid *invalidError
	return errors.As(err, &invalid)
}
