package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// failing finds messages that fail and are still retried: the broker refuses them, or their producer does not answer.
// Without this finding an operator would learn of them only when they are DEAD, or after hours. A coordinator that
// cannot list them is reported already.
func (r *report) failing(ctx context.Context, admin adminv1.AdminServiceClient, states []*adminv1.StateStats) {
	for _, s := range states {
		if s.GetCount() == 0 {
			continue
		}
		//nolint:exhaustive,gosec // the others do not go on by themselves; states are few
		switch halfmsg.State(s.GetState()) {
		case halfmsg.Sendable:
			r.refused(
				look(ctx, admin, s.GetState(), anyError, func(m *adminv1.MessageRecord) bool { return m.GetPublishAttempts() > 0 }),
			)
		case halfmsg.Pending:
			r.unanswered(look(ctx, admin, s.GetState(), callbackError, func(*adminv1.MessageRecord) bool { return true }))
		case halfmsg.Abandoned:
			r.timedOut(look(ctx, admin, s.GetState(), limitError, func(m *adminv1.MessageRecord) bool {
				return strings.HasPrefix(m.GetLastError(), limitError)
			}))
		}
	}
}

const (
	// anyError occurs in every error text of a broker or a coordinator.
	anyError = " "
	// callbackError is the prefix of the error of a Confirm call without an answer. UNKNOWN is an answer.
	callbackError = "Confirm of producer "
	// limitError is the prefix of the error of a message that was given up for its age.
	limitError = "confirm.give_up_after "
)

// failures are messages that fail.
type failures struct {
	// found is how many there are, and more whether there may be others.
	found int
	more  bool
	// first is the oldest.
	first *adminv1.MessageRecord
}

// String says how many there are, with the oldest and its error.
func (f failures) String() string {
	number := fmt.Sprint(f.found)
	if f.more {
		number = "at least " + number
	}
	return fmt.Sprintf("%s, such as %s/%s: %s", number, f.first.GetProducer(), f.first.GetMessage().GetId(),
		f.first.GetLastError())
}

// look reads a page of the messages in a state whose last error contains a text.
func look(
	ctx context.Context, admin adminv1.AdminServiceClient, state pb.State, text string,
	meant func(*adminv1.MessageRecord) bool,
) (f failures) {
	page, err := admin.ListMessages(ctx, &adminv1.ListMessagesRequest{
		Filter:   &adminv1.MessageFilter{State: state, ErrorContains: text},
		PageSize: failingPage,
	})
	if err != nil {
		return f
	}
	for _, m := range page.GetRecords() {
		if !meant(m) {
			continue
		}
		f.found++
		if f.first == nil {
			f.first = m
		}
	}
	f.more = page.GetNextPageToken() != ""
	return f
}

// failingPage bounds the counted messages: enough to tell a single message from many.
const failingPage = 100

func (r *report) refused(f failures) {
	if f.found > 0 {
		m := f.first.GetMessage()
		of := cause.OfRefusal(f.first.GetLastError(), m.GetExchange(), m.GetRoutingKey())
		r.warn(of.Name, "sendable messages are refused by the broker and tried again: "+f.String(), of.Why, of.Remedy)
	}
}

func (r *report) unanswered(f failures) {
	if f.found > 0 {
		r.warn(
			"messages-unanswered",
			"pending messages wait for their producer's answer: "+f.String(),
			"they wait for as long as it does not answer",
			whereToLook(f.first),
		)
	}
}

// whereToLook says how to find out why the producer of a message does not answer. A message has no target where the
// configuration has the producer's.
func whereToLook(m *adminv1.MessageRecord) string {
	if m.GetCallbackTarget() == "" {
		return "msghandler doctor with the coordinator's configuration, which has the producer's target, shows the cause"
	}
	return fmt.Sprintf("msghandler doctor --producer %s=%s shows the cause; "+
		"where it has moved for good, callbacks.moved says so", m.GetProducer(), m.GetCallbackTarget())
}

// timedOut adds to the finding about abandoned messages that some were given up for their age, which is no answer of a
// producer.
func (r *report) timedOut(f failures) {
	if f.found == 0 {
		return
	}
	for i := range r.all {
		if r.all[i].Name == "messages-abandoned" {
			r.all[i].What += "; given up at the time limit: " + f.String()
		}
	}
}
