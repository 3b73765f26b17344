package random

import (
	"slices"
	"strings"

	"github.com/alicebob/miniredis/v2"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

const (
	prefix = "r"
	shard  = prefix + ":{00}:"
)

// compare demands exactly the model's keys in Redis: each message in a cell and its page, or in one index and in the
// same index by creation time, whole and without expiry while the message is kept, and then a receipt that expires.
func (w *world) compare() {
	expected := map[string]bool{prefix + ":meta": true}
	busy := map[string]bool{}
	for _, name := range w.names {
		it := w.model.items[name]
		base := shard + name.Producer + ":"
		w.compareIndexes(name, it)
		w.compareLease(name, it)
		w.compareVerdict(name, it)
		record := base + "m:" + name.ID
		text, _ := w.server.Get(record)
		kind, _, _ := strings.Cut(text, " ")
		ttl := w.server.TTL(record)
		switch {
		case it.state == halfmsg.None:
			continue
		case it.state.Final():
			if kind != it.state.String() || ttl <= 0 {
				w.model.failf("%s is %v, its receipt is %q and expires in %v", name, it.state, text, ttl)
			}
		default:
			busy[name.Producer] = true
			expected[base+"x:"+name.ID] = true
			w.expectPages(base, expected)
			want, body := "half", string(it.content.Body)
			if it.state == halfmsg.Acknowledged {
				want, body = it.state.String(), ""
			}
			if kind != want || ttl != 0 || !strings.HasSuffix(text, "\n"+body) {
				w.model.failf("%s is %v, its record is %q and expires in %v", name, it.state, text, ttl)
			}
		}
		expected[record] = true
		expected[base+"leases"], expected[base+"verdicts"] = true, true
		for _, state := range halfmsg.Unfinished() {
			expected[base+state.String()] = true
			expected[base+state.String()+":created"] = true
		}
	}
	listed, _ := w.server.SMembers(shard + "producers")
	for producer := range busy {
		if !slices.Contains(listed, producer) {
			w.model.failf("producer %s has messages and is not listed", producer)
		}
	}
	expected[shard+"producers"] = len(busy) > 0
	for _, key := range w.server.Keys() {
		if !expected[key] {
			w.model.failf("%s is left over", key)
		}
	}
}

// expectPages adds the pages of a producer with messages.
func (w *world) expectPages(base string, expected map[string]bool) {
	expected[base+"pending:cells"], expected[base+"sendable:cells"], expected[base+"pages"] = true, true, true
	for _, key := range w.server.Keys() {
		if strings.HasPrefix(key, base+"page:") {
			expected[key] = true
		}
	}
}

// cell is the cell of a message, and the state that the cell's key says; None without a cell.
func cell(server *miniredis.Miniredis, name halfmsg.Name) (state halfmsg.State, text string) {
	for _, state := range []halfmsg.State{halfmsg.Sendable, halfmsg.Pending} {
		if text := server.HGet(shard+name.Producer+":"+state.String()+":cells", name.ID); text != "" {
			return state, text
		}
	}
	return halfmsg.None, ""
}

// verdictIn and ownerIn are the time of the verdict and the token in a cell, empty where there is none.
func verdictIn(cell string) string { return strings.Trim(cell[28:41], "0") }

func ownerIn(cell string) string { return strings.Trim(cell[42:], "-") }

func (w *world) compareIndexes(name halfmsg.Name, it *item) {
	paged, _ := cell(w.server, name)
	if paged != halfmsg.None && paged != it.state {
		w.model.failf("%s is %v; its cell is %v", name, it.state, paged)
	}
	for _, state := range halfmsg.Unfinished() {
		key := shard + name.Producer + ":" + state.String()
		for _, index := range []string{key, key + ":created"} {
			if in := w.indexed(index, name.ID); in != (state == it.state && paged == halfmsg.None) {
				w.model.failf("%s is %v; that it is in %s is %v", name, it.state, index, in)
			}
		}
	}
}

func (w *world) indexed(index, id string) bool {
	if !w.server.Exists(index) {
		return false
	}
	members, err := w.server.ZMembers(index)
	return err == nil && slices.Contains(members, id)
}

func (w *world) compareLease(name halfmsg.Name, it *item) {
	got := w.server.HGet(shard+name.Producer+":leases", name.ID)
	if state, text := cell(w.server, name); state != halfmsg.None {
		got = ownerIn(text)
	}
	if got != string(it.token) {
		w.model.failf("%s is leased to %q, want %q", name, got, it.token)
	}
}

// compareVerdict wants the time of a verdict to stand as long as the message may still be published.
func (w *world) compareVerdict(name halfmsg.Name, it *item) {
	have := w.server.HGet(shard+name.Producer+":verdicts", name.ID) != ""
	if state, text := cell(w.server, name); state != halfmsg.None {
		have = verdictIn(text) != ""
	}
	if want := it.state == halfmsg.Sendable || it.state == halfmsg.Dead; have != want {
		w.model.failf("%s is %v, and the time of its verdict stands: %t", name, it.state, have)
	}
}
