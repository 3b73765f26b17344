package checks

import (
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/wire"
)

// Acts lists what operators did by a call: the messages that were discarded, and those that were stored again from the
// archive.
func Acts(c wire.ScriptCall) (discarded, replayed []string) {
	if c.Script != "move" && c.Script != "replay" {
		return nil, nil
	}
	for _, s := range stepsOf(c) {
		switch {
		case s.eventKnown && s.kind == moved && s.event == halfmsg.EventDiscard:
			discarded = append(discarded, s.key)
		case s.eventKnown && s.event == halfmsg.EventReplay:
			replayed = append(replayed, s.key)
		}
	}
	return discarded, replayed
}
