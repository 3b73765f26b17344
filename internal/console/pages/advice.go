package pages

import (
	"fmt"
	"strings"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// The runbook's pages.
const (
	docs         = "https://github.com/msghandler/msghandler/blob/main/docs/"
	findingsPage = docs + "reference/findings.md#"
	alertsPage   = docs + "reference/alerts.md#"
)

// advice says why a problem matters, what to do, and where the runbook explains the problem.
type advice struct {
	Why, Do string
	// Name is the finding or the alert that Page explains.
	Name, Page string
}

func alert(name, why, do string) advice {
	return advice{Why: why, Do: do, Name: name, Page: alertsPage + strings.ToLower(name)}
}

// ofFinding is the advice of a finding, which the doctor prints too.
func ofFinding(name, why, do string) advice {
	return advice{Why: why, Do: do, Name: name, Page: findingsPage + name}
}

// ofCheck is the advice about a failing check of /readyz.
func ofCheck(name string) advice {
	kind, _, _ := strings.Cut(name, " ")
	switch {
	case name == "redis settings":
		return alert("MsghandlerStoreUnsafe", "messages can disappear",
			"change the setting of Redis that the error names, and write the setting into Redis's own file")
	case kind == "redis":
		return alert("MsghandlerStoreAway", "producers get UNAVAILABLE, and nothing is published meanwhile",
			"start Redis, or correct redis.url; msghandler doctor tells a wrong password, a replica and a full disk apart")
	case kind == "rabbitmq", kind == "broker":
		return alert("MsghandlerBrokerAway", "half messages are accepted, and wait in Redis until the broker takes them",
			"start the broker, or free its memory or disk: rabbitmq-diagnostics alarms; waiting messages go out by themselves")
	case kind == "outbox":
		return alert("MsghandlerOutboxDown", "rows wait in the database; half messages are not concerned",
			"start the database, or correct the key of the outbox that the error names")
	case strings.HasSuffix(name, " loop"):
		return alert("MsghandlerLoopFailing", "half messages are accepted, and wait in Redis for this part",
			"fix what the error names; msghandler doctor examines Redis, the brokers and the producers")
	}
	return alert("MsghandlerDown", "producers use the other coordinators meanwhile",
		"wait until the coordinator has started or ended; its log says why where that takes long")
}

// The advice about problems that the overview finds by itself.
var (
	onUnknownNote = alert("MsghandlerStoreRegressed", "acknowledged writes may be missing",
		"compare the producers' orders with the deliveries, as the page says")
	onRefused = alert("MsghandlerFull", "producers wait and call again; nothing of the refused calls is stored",
		"raise maxmemory of Redis or the producer's limit, or let the backlog shrink; the log says which limit it is")
	onUncounted = alert("MsghandlerStoreAway", "the numbers on this page are not known",
		"start Redis, or correct redis.url; msghandler doctor says what is wrong")
	onDead = alert("MsghandlerDead", "the broker refused these messages at every try, so no consumer gets them",
		"look at the groups: fix each cause (exchange, queue, permission), then retry the group")
	onAbandoned = alert("MsghandlerAbandoned", "no producer gave a verdict up to the limit, so the messages wait",
		"ask the producer's team about the business; retry asks the producer once more, discard removes the message")
	onPendingOld = alert("MsghandlerPendingOld", "the business is done or not, and its message waits",
		"see which producer does not answer or answers UNKNOWN, and fix that producer; Confirm calls repeat by themselves")
	onBacklog = alert("MsghandlerBacklog", "messages arrive late",
		"see whether the broker takes messages, and whether one exchange refuses them; msghandler doctor looks at both")
)

// onProducer is the advice about a producer that does not answer.
func onProducer(name string) advice {
	return alert("MsghandlerProducerAway", "messages of "+name+" stay PENDING; those of other producers are not concerned",
		"start "+name+", or make its callback target reachable; Confirm calls repeat by themselves, without a retry")
}

// onExchange is the advice about an exchange that refuses messages.
func onExchange(fault, exchange, routingKey string) advice {
	do := "fix what the error names; messages are published again by themselves until they are DEAD, and then need a retry"
	with := ""
	if routingKey != "" {
		with = " for the routing key " + routingKey
	}
	switch {
	case strings.Contains(fault, "NO_ROUTE"):
		do = fmt.Sprintf("bind a queue to the exchange %s%s; retry what is DEAD then", exchangeName(exchange), with)
	case strings.Contains(fault, "NOT_FOUND"):
		do = fmt.Sprintf("declare the exchange %s, or correct the producer; retry what is DEAD then", exchangeName(exchange))
	case strings.Contains(fault, "ACCESS_REFUSED"):
		do = fmt.Sprintf("give the user of amqp.url the permission to write to the exchange %s; retry what is DEAD then",
			exchangeName(exchange))
	}
	return alert("MsghandlerRefused", "its messages wait, and become DEAD after send.backoff", do)
}

// known is what the advice about a message depends on.
type known struct {
	state                          halfmsg.State
	fault                          string
	producer, exchange, routingKey string
}

// advised is the advice about a message in a state with a last error; a zero advice where there is nothing to do.
func (k known) advised() advice {
	silent := strings.HasPrefix(k.fault, "Confirm of producer ")
	switch {
	case k.state == halfmsg.Dead, k.state == halfmsg.Sendable && k.fault != "":
		a := onExchange(k.fault, k.exchange, k.routingKey)
		if k.state == halfmsg.Dead {
			a.Why, a.Name, a.Page = onDead.Why, onDead.Name, onDead.Page
		}
		return a
	case k.state == halfmsg.Abandoned && silent:
		a := onAbandoned
		a.Do = "start " + k.producer + ", or make its callback target reachable, then retry: the producer is asked once more"
		return a
	case k.state == halfmsg.Abandoned:
		return onAbandoned
	case k.state == halfmsg.Pending && silent:
		return onProducer(k.producer)
	case k.state == halfmsg.Pending && k.fault != "":
		a := onPendingOld
		a.Do = "ask the team of " + k.producer + ": its business has not ended, or the producer does not know the id; " +
			"Confirm calls repeat by themselves"
		return a
	case k.state == halfmsg.Acknowledged && k.fault != "":
		return alert("MsghandlerMarkersLeft", "the broker has the message; only the producer's marker is left",
			"see DeleteBusiness in the log of "+k.producer+"; the call repeats by itself")
	}
	return advice{}
}
