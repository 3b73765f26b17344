package app

import (
	"cmp"
	"fmt"

	"github.com/msghandler/msghandler/internal/events"
)

// refusalRemedies are the actions for a refused producer, by reason.
var refusalRemedies = map[string]string{
	"CALLBACK_FORBIDDEN": "allow its target in callbacks.allow and its network in callbacks.networks, " +
		"or correct the target that the producer sends, or that producers.NAME.target names",
	"CALLER_FORBIDDEN": "name it in producers.NAME.callers or grpc.callers, or in the producers of its token, " +
		"or have it call under its own name; look who it is, if you do not know it",
	"POLICY_FORBIDDEN": "the cause names the field and the keys: list the name there, if the producer is to use it, " +
		"or fix the producer",
	"INVALID_ARGUMENT": "the cause names the field: fix the producer; " +
		"for callback_target have the producer send one, or set producers.NAME.target",
	"NOT_ATTENDED": "start a replica that attends, have the producer send its callback target, " +
		"or set producers.NAME.target",
}

// noteRefused counts a call that is refused for good, and logs a line once a minute for each producer and reason:
// otherwise only the caller would know.
func (a *App) noteRefused(producer, reason, cause string) {
	unlogged, due := a.metrics.Refused(producer, reason, cause)
	if !due {
		return
	}
	a.logger.Warn("calls of a producer are refused; nothing of them is stored",
		"producer", producer, "reason", reason, "cause", cause, "remedy", refusalRemedies[reason], "calls", unlogged)
	a.events.Note(events.ProducerRefused, producer, reason+": "+cause)
}

// producerSplit is the reason for refused answers of a producer whose replicas have different marker stores. Such an
// answer is counted and shared like a refused call.
const producerSplit = "PRODUCER_SPLIT"

// noteSplit counts an answer of another marker store than the messages name, or a replica whose markers no other
// replica sees, and logs a line once a minute for each producer.
func (a *App) noteSplit(producer, store, other string) {
	cause := fmt.Sprintf("the marker store %s, and not %s", cmp.Or(other, "without an identity"), store)
	unlogged, due := a.metrics.Refused(producer, producerSplit, cause)
	if !due {
		return
	}
	a.logger.Warn("a producer's replicas have different marker stores; messages wait for the store of their own; "+
		"look for a process that runs under the producer's name with another database",
		"producer", producer, "marker_store", store, "other_store", other, "calls", unlogged)
	a.events.Note(events.ProducerSplit, producer, cause)
}
