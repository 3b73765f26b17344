package pages

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// messageData is the data of the page of a message.
type messageData struct {
	Record           *adminv1.MessageRecord
	State            halfmsg.State
	Means            string
	Final, Gone      bool
	Created, Updated time.Time
	Delay            time.Duration
	Content          content
	Next             step
	// Reason is the last error in short, where the error says more, and ErrorAt when it was stored.
	Reason  string
	ErrorAt time.Time
	advice
	CanRetry, CanDiscard bool
}

func (p *Pages) message(r *http.Request) answer {
	admin := p.config.Admin(r.RemoteAddr)
	if admin == nil {
		return notOpen()
	}
	name := halfmsg.Name{Producer: r.FormValue("producer"), ID: r.FormValue("id")}
	found, err := admin.GetMessage(r.Context(), &adminv1.GetMessageRequest{Producer: name.Producer, Id: name.ID})
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
		Content: p.content(r, address(name.Producer, name.ID), record.GetMessage().GetHeaders(),
			record.GetMessage().GetBody()),
	}
	data.Next = next(record, time.Now())
	if state == halfmsg.Pending && data.Next.Holder == "" {
		data.Next.Circuit = p.circuitOpen(record.GetProducer())
	}
	fault, m := record.GetLastError(), record.GetMessage()
	data.ErrorAt = timeOf(record.GetLastErrorTime())
	if data.Reason = halfmsg.Reason(fault); data.Reason == fault {
		data.Reason = ""
	}
	data.advice = known{state, fault, name.Producer, m.GetExchange(), m.GetRoutingKey()}.advised()
	return answer{page: "message", title: name.String(), data: data}
}

// timeOf is the zero time for an unset timestamp.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// circuitOpen says at how many coordinators the circuit of a producer is open; empty: at none.
func (p *Pages) circuitOpen(producer string) string {
	for _, line := range p.config.Peers().Producers() {
		switch {
		case line.Name != producer || line.Paused == 0:
		case line.Of > 1:
			return fmt.Sprintf("open at %d of %d coordinators", line.OpenAt, line.Of)
		default:
			return "open"
		}
	}
	return ""
}

// step is the next step of a message.
type step struct {
	// What happens next, and when; the zero time means that no time is set: the message waits for an operator, or for its
	// broker.
	What string
	At   time.Time
	// Short is What in a word, for lists.
	Short string
	// Holder is who works on the message now.
	Holder string
	// Circuit says where the producer's circuit is open; empty: nowhere, or the message waits for no call.
	Circuit string
}

// next says what happens next to a message.
func next(r *adminv1.MessageRecord, now time.Time) step {
	state := stateOf(r.GetState())
	if lease := timeOf(r.GetLeaseEndTime()); state.HasLoop() && r.GetLeaseOwner() != "" && lease.After(now) {
		return step{
			Holder: r.GetLeaseOwner(), At: lease, Short: "leased",
			What: map[halfmsg.State]string{
				halfmsg.Pending: "is asking producer " + r.GetProducer(), halfmsg.Sendable: "is publishing the message",
				halfmsg.Acknowledged: "is deleting the marker",
			}[state] + " now. If it dies, another instance takes over when the lease ends",
		}
	}
	due := timeOf(r.GetDueTime())
	switch state {
	case halfmsg.Pending:
		return step{What: "Producer " + r.GetProducer() + " gets a Confirm call", At: due}
	case halfmsg.Sendable:
		return publishing(r, due, now)
	case halfmsg.Acknowledged:
		return step{What: "Producer " + r.GetProducer() + " gets a DeleteBusiness call", At: due}
	case halfmsg.Abandoned:
		return step{What: "Nothing, until the producer submits the message or an operator retries it", Short: "-"}
	case halfmsg.Dead:
		return step{What: "Nothing, until an operator retries it: read the last error, fix the cause, then retry", Short: "-"}
	}
	return step{What: "Nothing: the message is finished. Its receipt expires after done.retention", Short: "-"}
}

// publishing is the next step of a SENDABLE message without a lease holder.
func publishing(r *adminv1.MessageRecord, due, now time.Time) step {
	to := "exchange " + exchangeName(r.GetMessage().GetExchange())
	if broker := r.GetMessage().GetBroker(); broker != "" {
		to += " of broker " + broker
	}
	switch {
	case r.GetHeldBy() != "":
		return step{
			What: "Waits for " + r.GetProducer() + "/" + r.GetHeldBy() + ", the first unfinished message with its ordering " +
				"key: retry or discard that one if it is stuck",
			Short: "held",
		}
	case r.GetParked():
		return step{
			What:  "Waits for its broker, which takes no messages now; then it is published to " + to + " at once",
			Short: "broker away",
		}
	case r.GetPublishAttempts() > 0 && due.After(now):
		return step{What: "Publish again to " + to + ", after the pause behind each refusal", At: due}
	case r.GetMessage().GetDelay().AsDuration() > 0 && due.After(now):
		return step{What: "Publish to " + to + ", after the delay that its producer asked for", At: due}
	}
	return step{What: "Publish to " + to, At: due}
}

// Listed is the next step in a word: when, or why not.
func (s step) Listed(now time.Time) string {
	switch {
	case s.Short != "":
		return s.Short
	case s.At.After(now):
		return operate.Ago(s.At, now)
	}
	return "due"
}
