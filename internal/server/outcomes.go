package server

import (
	"context"
	"strconv"

	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// item is the path of an item of a repeated field.
func item(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// outcomes makes the answer about each message of a batch, with the texts of a single call.
func (s *Server) outcomes(ctx context.Context, call string, results []halfmsg.Result) []*msghandlerv1.Outcome {
	outcomes := make([]*msghandlerv1.Outcome, len(results))
	for i, r := range results {
		outcomes[i] = &msghandlerv1.Outcome{State: msghandlerv1.State(r.State)}
		if r.Err != nil {
			s.faults.note(ctx, call, r.Err)
			st := translate(r.Err, r.State)
			outcomes[i].Code, outcomes[i].Error = int32(st.Code()), st.Message() //nolint:gosec // codes are small
			outcomes[i].Reason = reasonOf(r.Err)
		}
	}
	return outcomes
}

// halted is the error of a batch whose items all failed for the same retriable reason, or nil. A client then need not
// read a thousand outcomes to learn that the batch should be repeated.
func halted(results []halfmsg.Result) error {
	for _, r := range results {
		if r.Err == nil || !faultOf(r.Err).retry || faultOf(r.Err).reason != faultOf(results[0].Err).reason {
			return nil
		}
	}
	if len(results) == 0 {
		return nil
	}
	return results[0].Err
}

// cut shortens a caller's text for the logs.
func cut(s string) string {
	if runes := []rune(s); len(runes) > halfmsg.MaxCause {
		return string(runes[:halfmsg.MaxCause])
	}
	return s
}
