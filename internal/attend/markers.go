package attend

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// A question about messages that name a marker store goes to streams of this store, and to streams that name none.
// Where only other stores attend, the answer names one of these stores and has no verdict: the producer is split.

// isOther reports that a stream or an answer of one store cannot speak for another store.
func isOther(store, wanted string) bool { return wanted != "" && store != "" && store != wanted }

// wantedStore is the marker store that a question is about; empty for any.
func wantedStore(question *msghandlerv1.AttendQuestion) string {
	if about := question.GetConfirm(); about != nil {
		return about.GetMarkerStore()
	}
	return question.GetDeleteBusiness().GetMarkerStore()
}

// otherStoreLocked is a store of the roster that cannot answer for the wanted store; empty where there is none.
func (r *roster) otherStoreLocked(wanted string) string {
	for _, s := range r.streams {
		if isOther(s.hello.MarkerStore, wanted) {
			return s.hello.MarkerStore
		}
	}
	return ""
}

// apartLocked is a store of the roster whose markers a new replica does not see. Only stores count that no two replicas
// share.
func (r *roster) apartLocked(hello Hello) string {
	for _, s := range r.streams {
		if isOther(s.hello.MarkerStore, hello.MarkerStore) && (s.hello.OwnMarkers || hello.OwnMarkers) {
			return s.hello.MarkerStore
		}
	}
	return ""
}

// speaksFor reports whether the verdicts of an answer are those of the store that the question names. No answer about
// deletions names a store.
func (a *ask) speaksFor(answer *msghandlerv1.AttendAnswer) bool {
	wanted, about := wantedStore(a.question), answer.GetConfirm()
	return wanted == "" || about == nil || about.GetMarkerStore() == wanted
}

// fromOther is the end of a question that only another store could answer.
func (a *ask) fromOther() (*msghandlerv1.AttendAnswer, string, error) {
	if a.question.GetConfirm() == nil {
		return nil, Failed, status.Errorf(codes.FailedPrecondition,
			"the replicas of producer %s have the marker store %s, and the messages name %s", a.producer, a.other,
			wantedStore(a.question))
	}
	return &msghandlerv1.AttendAnswer{Answer: &msghandlerv1.AttendAnswer_Confirm{
		Confirm: &msghandlerv1.ConfirmResponse{MarkerStore: a.other},
	}}, Failed, nil
}
