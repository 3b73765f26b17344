package app

import "github.com/msghandler/msghandler/internal/events"

// refusalRemedies say what to do about a producer that is refused, by reason.
var refusalRemedies = map[string]string{
	"CALLBACK_FORBIDDEN": "allow its target in callbacks.allow and its network in callbacks.networks, " +
		"or correct the target that the producer sends, or that producers.NAME.target names",
	"CALLER_FORBIDDEN": "name its certificate in producers.NAME.callers or grpc.callers, " +
		"or have it call under its own name; look who it is, if you do not know it",
	"INVALID_ARGUMENT": "the cause names the field: fix the producer; " +
		"for callback_target have the producer send one, or set producers.NAME.target",
}

// noteRefused counts a call of a producer that is refused for good, and tells of it once a minute for each producer and
// reason: only the caller has heard of it otherwise.
func (a *App) noteRefused(producer, reason, cause string) {
	unlogged, due := a.metrics.Refused(producer, reason, cause)
	if !due {
		return
	}
	a.logger.Warn("calls of a producer are refused; nothing of them is stored",
		"producer", producer, "reason", reason, "cause", cause, "remedy", refusalRemedies[reason], "calls", unlogged)
	a.events.Note(events.ProducerRefused, producer, reason+": "+cause)
}
