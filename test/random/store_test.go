package random

import (
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/storekeys"
)

const prefix = "r"

// compare demands exactly the model's messages in Redis, in keys that fit together.
func (w *world) compare() {
	keys := storekeys.Read(w.server, prefix)
	for _, wrong := range keys.Check(time.UnixMilli(w.model.now)) {
		w.model.failf("%s", wrong)
	}
	for _, name := range w.names {
		m := keys.Messages[name.String()]
		if m == nil {
			m = &storekeys.Message{}
		}
		it := w.model.items[name]
		if state := m.State(); state != it.state {
			w.model.failf("%s is %v; its keys say %v", name, it.state, state)
		}
		if owner := m.Owner(); owner != string(it.token) {
			w.model.failf("%s is leased to %q, want %q", name, owner, it.token)
		}
		if it.state != halfmsg.None && !it.state.Final() {
			w.compareContent(name, it)
		}
	}
	for key := range keys.Messages {
		if !slices.ContainsFunc(w.names, func(n halfmsg.Name) bool { return n.String() == key }) {
			w.model.failf("%s is in Redis, and no sequence has it", key)
		}
	}
}

// compareContent wants the whole content of a message, as long as the message may be published.
func (w *world) compareContent(name halfmsg.Name, it *item) {
	text, _ := w.server.Get(prefix + ":{00}:" + name.Producer + ":m:" + name.ID)
	body := string(it.content.Body)
	if it.state == halfmsg.Acknowledged {
		body = ""
	}
	if !strings.HasSuffix(text, "\n"+body) {
		w.model.failf("%s is %v, its record is %q", name, it.state, text)
	}
}
