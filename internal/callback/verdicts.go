package callback

import (
	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// oddities counts the faults of an answer.
type oddities struct {
	contradictory int
	notAsked      int
	noVerdict     int
}

func (o oddities) any() bool { return o != oddities{} }

// judge enters a verdict for every id of the request. A doubt is never a verdict: an id without an answer, with
// contradictory answers, or with a value outside the contract is UNKNOWN.
func judge(verdicts map[string]halfmsg.Verdict, asked []string, answers []*msghandlerv1.Confirmation) oddities {
	var odd oddities
	said := make(map[string]halfmsg.Verdict, len(answers))
	for _, answer := range answers {
		verdict, ok := verdictOf(answer.GetVerdict())
		if !ok {
			odd.noVerdict++
		}
		if before, twice := said[answer.GetId()]; twice && before != verdict {
			odd.contradictory++
			verdict = halfmsg.VerdictUnknown
		}
		said[answer.GetId()] = verdict
	}
	for _, id := range asked {
		verdict, ok := said[id]
		if !ok {
			verdict = halfmsg.VerdictUnknown
		}
		verdicts[id] = verdict
	}
	for id := range said {
		if _, ok := verdicts[id]; !ok {
			odd.notAsked++
		}
	}
	return odd
}

func verdictOf(v msghandlerv1.Verdict) (verdict halfmsg.Verdict, ok bool) {
	switch v {
	case msghandlerv1.Verdict_VERDICT_COMMITTED:
		return halfmsg.VerdictCommitted, true
	case msghandlerv1.Verdict_VERDICT_ROLLED_BACK:
		return halfmsg.VerdictRolledBack, true
	case msghandlerv1.Verdict_VERDICT_UNKNOWN:
		return halfmsg.VerdictUnknown, true
	case msghandlerv1.Verdict_VERDICT_UNAVAILABLE:
		return halfmsg.VerdictUnavailable, true
	}
	return halfmsg.VerdictUnknown, false
}
