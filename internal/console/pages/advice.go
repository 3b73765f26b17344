package pages

import (
	"strings"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// advice says why a problem matters, what to do, and where the runbook explains the problem.
type advice struct {
	Why, Do string
	// Name is the finding or the alert that Page explains.
	Name, Page string
}

func alert(name, why, do string) advice {
	return advice{Why: why, Do: do, Name: name, Page: cause.AlertsPage + "#" + strings.ToLower(name)}
}

// ofFinding is the advice of a finding, which the doctor prints too.
func ofFinding(name, why, do string) advice {
	return advice{Why: why, Do: do, Name: name, Page: cause.Page(name)}
}

// ofCause is the advice about an error.
func ofCause(c cause.Cause) advice { return ofFinding(c.Name, c.Why, c.Remedy) }

// The advice about problems that the overview finds by itself.
var (
	onUnknownNote = alert("MsghandlerStoreRegressed", "acknowledged writes may be missing",
		"compare the producers' orders with the deliveries, as the page says")
	onRefused = alert("MsghandlerFull", "producers wait and call again; nothing of the refused calls is stored",
		"raise maxmemory of Redis or the producer's limit, or let the backlog shrink; the log says which limit it is")
	onDead = alert("MsghandlerDead", "the broker refused these messages at every try, so no consumer gets them",
		"look at the groups: fix each cause (exchange, queue, permission), then retry the group")
	onAbandoned = alert("MsghandlerAbandoned", "no producer gave a verdict up to the limit, so the messages wait",
		"ask the producer's team about the business; retry asks the producer once more, discard removes the message")
	onPendingOld = alert("MsghandlerPendingOld", "the business is done or not, and its message waits",
		"see which producer does not answer or answers UNKNOWN, and fix that producer; Confirm calls repeat by themselves")
	onBacklog = alert("MsghandlerBacklog", "messages arrive late",
		"see whether the broker takes messages, and whether one exchange refuses them; msghandler doctor looks at both")
)

// known is what the advice about a message depends on.
type known struct {
	state                          halfmsg.State
	fault                          string
	producer, exchange, routingKey string
}

// advised is the advice about a message in a state with a last error; a zero advice where there is nothing to do.
func (k known) advised() advice {
	silent := strings.HasPrefix(k.fault, "Confirm of producer ")
	var a advice
	switch {
	case k.state == halfmsg.Dead:
		a = onDead
		a.Do = cause.OfRefusal(k.fault, k.exchange, k.routingKey).Remedy
	case k.state == halfmsg.Sendable && k.fault != "":
		a = ofCause(cause.OfRefusal(k.fault, k.exchange, k.routingKey))
	case k.state == halfmsg.Abandoned && silent:
		a = onAbandoned
		a.Do = cause.OfCall(k.fault).Remedy + "; then retry: the producer is asked once more"
	case k.state == halfmsg.Abandoned:
		a = onAbandoned
	case k.state == halfmsg.Pending && silent:
		a = ofCause(cause.OfCall(k.fault))
	case k.state == halfmsg.Pending && strings.Contains(k.fault, "answered UNAVAILABLE"):
		a = ofCause(cause.ProducerUnable)
	case k.state == halfmsg.Pending && k.fault != "":
		a = onPendingOld
		a.Do = "ask the team of " + k.producer + ": its business has not ended, or the producer does not know the id; " +
			"Confirm calls repeat by themselves"
	case k.state == halfmsg.Acknowledged && k.fault != "":
		a = alert("MsghandlerMarkersLeft", "the broker has the message; only the producer's marker is left",
			"see DeleteBusiness in the log of "+k.producer+"; the call repeats by itself")
	}
	return a
}
