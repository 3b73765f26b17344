// Package storekeys reads the keys of the Redis store from a miniredis, and finds contradictions among them.
// docs/reference/redis.md describes the keys.
package storekeys

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Snapshot has the keys of a prefix. A snapshot is consistent when no script runs meanwhile.
type Snapshot struct {
	// Messages are all messages with a key, by PRODUCER/ID. Messages with nothing but a page are gone.
	Messages map[string]*Message
	// wrong are keys of unknown names, and keys with a wrong expiry.
	wrong []string
	// listed are the producers in the sets of producers, by SHARD:PRODUCER.
	listed map[string]bool
	// paged has the page lists, by SHARD:PRODUCER:page:NUMBER, and due the due times of pages by the same name.
	paged map[string]map[string]bool
	due   map[string]float64
	// chains have the places of ids, by SHARD:PRODUCER and ordering key, and awaited the keys of chains that are awaited.
	chains  map[chain]map[string]float64
	awaited map[chain]bool
}

// chain names a chain.
type chain struct{ home, key string }

// Message has the keys of a message.
type Message struct {
	// Home is SHARD:PRODUCER.
	Home string
	// Kind is the first word of the record, or of the receipt; empty without both. Created is its time, and TTL when the
	// key expires.
	Kind    string
	Created int64
	TTL     time.Duration
	// Cells are by their state. Due and Entered are the scores in the indexes of due times and of creation times.
	Cells        map[halfmsg.State]Cell
	Due, Entered map[halfmsg.State]float64
	// Token and Verdict belong to an indexed message.
	Token, Verdict string
	// Key is the ordering key while the message is in a chain, and OrderingKey that of the record.
	Key, OrderingKey string
	// Notes are the fields of the notes; nil without notes.
	Notes map[string]string
}

// Cell is the cell of a paged message.
type Cell struct {
	Created, Due, Since int64
	// Token is empty without an owner.
	Token string
}

// Read reads the keys of a prefix.
func Read(server *miniredis.Miniredis, prefix string) *Snapshot {
	s := &Snapshot{
		Messages: map[string]*Message{}, listed: map[string]bool{}, paged: map[string]map[string]bool{},
		due: map[string]float64{}, chains: map[chain]map[string]float64{}, awaited: map[chain]bool{},
	}
	for _, key := range server.Keys() {
		if rest, own := strings.CutPrefix(key, prefix+":"); own {
			s.read(server, key, rest)
		}
	}
	return s
}

// shardKey takes a key of a shard apart: shard, and the rest.
var shardKey = regexp.MustCompile(`^\{([0-9a-z]+)\}:(.+)$`)

func (s *Snapshot) read(server *miniredis.Miniredis, key, rest string) {
	parts := shardKey.FindStringSubmatch(rest)
	if parts == nil {
		s.others(key, rest, server.TTL(key), outside)
		return
	}
	shard, name := parts[1], parts[2]
	producer, part, ofProducer := strings.Cut(name, ":")
	switch {
	case name == "producers":
		members, _ := server.SMembers(key)
		for _, producer := range members {
			s.listed[shard+":"+producer] = true
		}
		s.lasting(key, server.TTL(key))
	case ofProducer && !strings.Contains(producer, "@"):
		s.readPart(server, key, shard+":"+producer, part)
	default:
		s.others(key, name, server.TTL(key), ofShard)
	}
}

// message is the message of a home with an id.
func (s *Snapshot) message(home, id string) *Message {
	_, producer, _ := strings.Cut(home, ":")
	m := s.Messages[producer+"/"+id]
	if m == nil {
		m = &Message{
			Home: home, Cells: map[halfmsg.State]Cell{}, Due: map[halfmsg.State]float64{},
			Entered: map[halfmsg.State]float64{},
		}
		s.Messages[producer+"/"+id] = m
	}
	return m
}

// readPart reads a key of a producer.
func (s *Snapshot) readPart(server *miniredis.Miniredis, key, home, part string) {
	if id, is := strings.CutPrefix(part, "m:"); is {
		if text, _ := server.Get(key); strings.HasPrefix(text, "keyed ") {
			s.lasting(key, server.TTL(key))
			return // a pointer to the message
		}
		s.readRecord(server, key, s.message(home, id))
		return
	}
	if id, is := strings.CutPrefix(part, "x:"); is {
		m := s.message(home, id)
		m.Notes = fieldsOf(server, key)
		s.lasting(key, server.TTL(key))
		return
	}
	s.lasting(key, server.TTL(key))
	if strings.HasPrefix(part, "page:") {
		ids, _ := server.List(key)
		page := map[string]bool{}
		for _, id := range ids {
			page[id] = true
		}
		s.paged[home+":"+part] = page
		return
	}
	if name, is := strings.CutPrefix(part, "chain:"); is {
		s.chains[chain{home, name}], _ = server.SortedSet(key)
		return
	}
	s.readShared(server, key, home, part)
}

// readShared reads a key of all messages of a producer.
func (s *Snapshot) readShared(server *miniredis.Miniredis, key, home, part string) {
	switch part {
	case "pages":
		scores, _ := server.SortedSet(key)
		for number, due := range scores {
			s.due[home+":page:"+number] = due
		}
		return
	case "leases":
		for id, token := range fieldsOf(server, key) {
			s.message(home, id).Token = token
		}
		return
	case "keys":
		for id, key := range fieldsOf(server, key) {
			s.message(home, id).Key = key
		}
		return
	case "awaited":
		for name := range fieldsOf(server, key) {
			s.awaited[chain{home, name}] = true
		}
		return
	case "verdicts":
		for id, since := range fieldsOf(server, key) {
			s.message(home, id).Verdict = since
		}
		return
	}
	name, kind, _ := strings.Cut(part, ":")
	state, err := halfmsg.ParseState(name)
	switch {
	case err != nil || kind != "" && kind != "created" && kind != "cells":
		s.wrong = append(s.wrong, key+": no key has this name")
	case kind == "cells":
		for id, text := range fieldsOf(server, key) {
			s.message(home, id).Cells[state] = readCell(text)
		}
	default:
		scores, _ := server.SortedSet(key)
		for id, score := range scores {
			m := s.message(home, id)
			into := m.Due
			if kind == "created" {
				into = m.Entered
			}
			into[state] = score
		}
	}
}

// orderingKey is the ordering key in the first line of a record.
var orderingKey = regexp.MustCompile(`"ordering_key":"([^"]+)"`)

func (s *Snapshot) readRecord(server *miniredis.Miniredis, key string, m *Message) {
	text, _ := server.Get(key)
	words := strings.SplitN(text, " ", 3)
	m.Kind, m.TTL = words[0], server.TTL(key)
	if len(words) > 1 {
		m.Created, _ = strconv.ParseInt(words[1], 10, 64)
	}
	line, _, _ := strings.Cut(text, "\n")
	if found := orderingKey.FindStringSubmatch(line); found != nil && !strings.Contains(line, `"replayed":true`) {
		m.OrderingKey = found[1]
	}
}

func fieldsOf(server *miniredis.Miniredis, key string) map[string]string {
	names, _ := server.HKeys(key)
	fields := make(map[string]string, len(names))
	for _, name := range names {
		fields[name] = server.HGet(key, name)
	}
	return fields
}

// readCell reads CREATED DUE SINCE TOKEN.
func readCell(text string) (c Cell) {
	words := strings.SplitN(text, " ", 4)
	for i, into := range []*int64{&c.Created, &c.Due, &c.Since} {
		if i < len(words) {
			*into, _ = strconv.ParseInt(words[i], 10, 64)
		}
	}
	if len(words) == 4 {
		c.Token = strings.Trim(words[3], "-")
	}
	return c
}

// Receipt reports a finished message: its receipt expires.
func (m *Message) Receipt() bool {
	state, err := halfmsg.ParseState(m.Kind)
	return err == nil && state.Final()
}

// State is where the message stands by its cell or its index, or by its receipt.
func (m *Message) State() halfmsg.State {
	for _, state := range halfmsg.Unfinished() {
		_, paged := m.Cells[state]
		_, indexed := m.Due[state]
		if paged || indexed {
			return state
		}
	}
	if state, err := halfmsg.ParseState(m.Kind); err == nil && state.Final() {
		return state
	}
	return halfmsg.None
}

// Owner is the token of the message's lease; empty without a lease.
func (m *Message) Owner() string {
	for _, cell := range m.Cells {
		return cell.Token
	}
	return m.Token
}

// Judged reports whether the time of the verdict stands.
func (m *Message) Judged() bool {
	for _, cell := range m.Cells {
		return cell.Since > 0
	}
	return m.Verdict != ""
}

// Counts counts the unfinished messages by state, and the PENDING ones by producer.
func (s *Snapshot) Counts() (states map[halfmsg.State]int64, pending map[string]int64) {
	states, pending = map[halfmsg.State]int64{}, map[string]int64{}
	for name, m := range s.Messages {
		state := m.State()
		if state == halfmsg.None || state.Final() {
			continue
		}
		states[state]++
		if producer, _, _ := strings.Cut(name, "/"); state == halfmsg.Pending {
			pending[producer]++
		}
	}
	return states, pending
}
