package server

import (
	"cmp"
	"context"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// reasonInvalid is the reason of a refusal that names fields, and so needs no reason in its ErrorInfo.
const reasonInvalid = "INVALID_ARGUMENT"

// refuse answers a call of a producer that must be fixed by the producer's team, or in the configuration of this
// coordinator. The caller learns why; with the report, operators do too.
func (s *Server) refuse(ctx context.Context, producer string, err error) error {
	s.reportRefusal(ctx, producer, err)
	return translate(err, halfmsg.None).Err()
}

// reportRefusal reports one call, or one message of a batch, that is refused.
func (s *Server) reportRefusal(ctx context.Context, producer string, err error) {
	if !ValidProducer(producer) {
		producer = "" // it may hold anything
	}
	s.recordPolicyRefusal(ctx, producer, err)
	// The text of both kinds of errors is fit for the caller.
	s.config.Refused(producer, cmp.Or(reasonOf(err), reasonInvalid), cut(err.Error()))
}
