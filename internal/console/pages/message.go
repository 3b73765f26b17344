package pages

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// messageData is the data of the page of a message.
type messageData struct {
	Record           *msghandlerv1.MessageRecord
	State            halfmsg.State
	Means            string
	Final, Gone      bool
	Created, Updated time.Time
	Delay            time.Duration
	// Hidden says why the headers and the body are not shown; empty: they are.
	Hidden               string
	Headers              []string
	Body                 preview
	Forms                []string
	Next                 string
	NextAt               time.Time
	CanRetry, CanDiscard bool
}

func (p *Pages) message(r *http.Request) answer {
	admin := p.config.Admin(r.RemoteAddr)
	if admin == nil {
		return notOpen()
	}
	name := halfmsg.Name{Producer: r.FormValue("producer"), ID: r.FormValue("id")}
	found, err := admin.GetMessage(r.Context(), &msghandlerv1.GetMessageRequest{Producer: name.Producer, Id: name.ID})
	switch {
	case errors.Is(err, halfmsg.ErrNotFound):
		return trouble(
			http.StatusNotFound,
			"No message "+name.String(),
			"It was never stored, or it is finished and its receipt has expired, or an operator discarded it. "+
				"The log says who discarded which message.",
		)
	case err != nil:
		return trouble(statusOf(err), "Message "+name.String(), err.Error())
	}
	record := found.GetRecord()
	state := stateOf(record.GetState())
	data := messageData{
		Record: record, State: state, Means: means[state],
		Final: state.Final(), Gone: state == halfmsg.Acknowledged || state.Final(),
		Created: timeOf(record.GetCreateTime()), Updated: timeOf(record.GetUpdateTime()),
		Delay:      record.GetMessage().GetDelay().AsDuration(),
		CanRetry:   legal(state, halfmsg.EventRetry) && p.canChange(r, actRetry),
		CanDiscard: legal(state, halfmsg.EventDiscard) && p.canChange(r, actDiscard),
		Hidden:     p.hidesBodies(r), Forms: []string{"json", "text", "hex"},
	}
	if data.Hidden == "" {
		data.Headers = slices.Sorted(maps.Keys(record.GetMessage().GetHeaders()))
		data.Body = previewOf(record.GetMessage().GetBody(), r.FormValue("as"))
	}
	data.Next, data.NextAt = next(record, state, time.Now())
	return answer{page: "message", title: name.String(), data: data}
}

// timeOf is the zero time for an unset timestamp.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// next says what happens next to a message, and when; the zero time means that the message waits for an operator.
func next(r *msghandlerv1.MessageRecord, state halfmsg.State, now time.Time) (what string, at time.Time) {
	due, lease := timeOf(r.GetDueTime()), timeOf(r.GetLeaseUntil())
	held := r.GetLeaseOwner() != "" && lease.After(now)
	if held {
		due = lease
	}
	switch {
	case state == halfmsg.Pending && held:
		return "is asking producer " + r.GetProducer() +
			" now. If it dies, another instance takes over when the lease ends", due
	case state == halfmsg.Pending:
		return "Producer " + r.GetProducer() + " gets a Confirm call", due
	case state == halfmsg.Sendable && held:
		return "is publishing the message now. If it dies, another instance takes over when the lease ends", due
	case state == halfmsg.Sendable:
		return fmt.Sprintf("Publish to exchange %s", exchangeName(r.GetMessage().GetExchange())), due
	case state == halfmsg.Acknowledged && held:
		return "is deleting the marker now. If it dies, another instance takes over when the lease ends", due
	case state == halfmsg.Acknowledged:
		return "Producer " + r.GetProducer() + " gets a DeleteBusiness call", due
	case state == halfmsg.Abandoned:
		return "Nothing, until the producer submits the message or an operator retries it", time.Time{}
	case state == halfmsg.Dead:
		return "Nothing, until an operator retries it: read the last error, fix the cause, then retry", time.Time{}
	}
	return "Nothing: the message is finished. Its receipt expires after done.retention", time.Time{}
}
