package server

import (
	"context"
	"slices"
	"strconv"

	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// item is the path of one item of a repeated field.
func item(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// outcomes makes the answer about each message of a batch. Its texts are those that a single call would get.
func (s *Server) outcomes(call string, results []halfmsg.Result) []*msghandlerv1.Outcome {
	outcomes := make([]*msghandlerv1.Outcome, len(results))
	for i, r := range results {
		outcomes[i] = &msghandlerv1.Outcome{State: msghandlerv1.State(r.State)}
		if r.Err != nil {
			s.faults.note(call, r.Err)
			st := translate(r.Err, r.State)
			outcomes[i].Code, outcomes[i].Error = int32(st.Code()), st.Message() //nolint:gosec // codes are small
		}
	}
	return outcomes
}

// halted is the error of a whole batch that could not be worked on, nil where any item has an answer of its own: a
// client then need not look at a thousand outcomes to learn that it should come again.
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

// inDetachedWrite makes a call that changes something in the store, unless its caller has left before.
func (s *Server) inDetachedWrite(
	ctx context.Context, n int, do func(ctx context.Context) []halfmsg.Result,
) []halfmsg.Result {
	if err := ctx.Err(); err != nil {
		return slices.Repeat([]halfmsg.Result{{Err: err}}, n)
	}
	ctx, cancel := s.detachedWriteContext(ctx)
	defer cancel()
	return do(ctx)
}

// turns splits places into those of names that come for the first time and, where there are any, the rest. Once the
// first of a name has its answer it is the same for the others whatever their order, so one more call to the store does
// for all of them.
func turns(places []int, name func(i int) halfmsg.Name) (parts [][]int) {
	seen := make(map[halfmsg.Name]struct{}, len(places))
	var first, rest []int
	for _, i := range places {
		if _, again := seen[name(i)]; again {
			rest = append(rest, i)
			continue
		}
		seen[name(i)] = struct{}{}
		first = append(first, i)
	}
	for _, part := range [][]int{first, rest} {
		if len(part) > 0 {
			parts = append(parts, part)
		}
	}
	return parts
}

// scatter puts results at their places.
func scatter(into []halfmsg.Result, places []int, results []halfmsg.Result) {
	for k, i := range places {
		into[i] = results[k]
	}
}

// cut shortens what a caller wrote for the logs.
func cut(s string) string {
	if runes := []rune(s); len(runes) > halfmsg.MaxCause {
		return string(runes[:halfmsg.MaxCause])
	}
	return s
}
