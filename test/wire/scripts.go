package wire

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// luaFiles are the store's scripts as seen from a package of test/.
const luaFiles = "../../internal/store/redis/lua/*.lua"

// scripts knows the store's scripts. Their hashes come from the clients, which load the scripts at their start.
type scripts struct {
	bodies map[string]string // by name, without the first line

	mu    sync.Mutex
	known map[string]known // by hash
}

// known is a script that a client has loaded: one script, or several that run for the parts of a call.
type known struct {
	names  []string
	joined bool
}

func readScripts() (*scripts, error) {
	paths, err := filepath.Glob(luaFiles)
	if err != nil {
		return nil, err
	}
	s := &scripts{bodies: map[string]string{}, known: map[string]known{}}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		s.bodies[strings.TrimSuffix(filepath.Base(path), ".lua")] = withoutComments(string(text))
	}
	if len(s.bodies) == 0 {
		return nil, fmt.Errorf("no scripts at %s", luaFiles)
	}
	return s, nil
}

// withoutComments is a script as the store loads it.
func withoutComments(text string) string {
	_, body, _ := strings.Cut(text, "\n")
	var code strings.Builder
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			code.WriteString(line)
		}
	}
	return code.String()
}

// learn remembers a script by its hash. Its files are known by their last lines.
func (s *scripts) learn(source string) known {
	sum := sha1.Sum([]byte(source)) // Redis' own way of naming scripts
	k := s.read(source)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[hex.EncodeToString(sum[:])] = k
	return k
}

func (s *scripts) read(source string) known {
	before, after, _ := strings.Cut(s.bodies["joined"], "SCRIPTS")
	inner, joined := strings.CutSuffix(source, after)
	if !joined {
		return known{names: []string{s.nameOf(source)}}
	}
	_, inner, _ = strings.Cut(inner, before)
	k := known{joined: true}
	for function := range strings.SplitSeq(inner, "\nend,\n") {
		if function != "" {
			k.names = append(k.names, s.nameOf(function))
		}
	}
	return k
}

// nameOf names a script by the file at its end.
func (s *scripts) nameOf(source string) string {
	for name, body := range s.bodies {
		if strings.HasSuffix(source, body) {
			return name
		}
	}
	return ""
}

func (s *scripts) hashed(sha string) known {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[sha]
}

// command returns the events of a Redis command: one for each part of a joined call.
func (s *scripts) command(args []string) ([]Event, error) {
	if len(args) == 0 {
		return nil, nil
	}
	parts, err := s.parts(args)
	if err == nil && len(parts) == 0 {
		return []Event{{Name: strings.ToUpper(args[0])}}, nil
	}
	events := make([]Event, len(parts))
	for i, p := range parts {
		events[i] = eventOf(p.script, p.args)
		events[i].joined = p.joined
	}
	return events, err
}

// part is a call of one script, or a part of a joined call.
type part struct {
	script string
	args   []string
	joined bool
}

// parts are the calls of scripts in a Redis command.
func (s *scripts) parts(args []string) ([]part, error) {
	name := strings.ToUpper(args[0])
	var k known
	switch {
	case name == "SCRIPT" && len(args) > 2:
		s.learn(args[2])
	case name == "EVAL" && len(args) > 2:
		k = s.learn(args[1])
	case name == "EVALSHA" && len(args) > 2:
		k = s.hashed(strings.ToLower(args[1]))
	}
	const own = 4 // EVALSHA, hash, number of keys, key
	switch {
	case k.joined:
		return k.parts(args[own:])
	case len(k.names) == 1 && k.names[0] != "":
		return []part{{script: k.names[0], args: args[own:]}}, nil
	}
	return nil, nil
}

// parts are the parts of a joined call, as joined.lua describes its arguments.
func (k known) parts(args []string) (parts []part, err error) {
	for len(args) > 2 {
		number, err := strconv.Atoi(args[1])
		n, err2 := strconv.Atoi(args[2])
		if err != nil || err2 != nil || number < 1 || number > len(k.names) || 3+n > len(args) {
			return nil, &strangeError{fmt.Sprintf("a joined call that goes on with %.80q", args)}
		}
		parts = append(parts, part{script: k.names[number-1], args: args[3 : 3+n], joined: true})
		args = args[3+n:]
	}
	return parts, nil
}

func eventOf(script string, args []string) Event {
	return Event{Name: stepOf(script, args), Messages: messagesOf(script, args), script: script}
}

// stepOf is the script that does the same for messages in the indexes.
func stepOf(name string, args []string) string {
	switch name {
	case "create_paged":
		return "create"
	case "settle_paged":
		return "move"
	case "submit_paged":
		if len(args) > 3 && args[3] == codeOf(halfmsg.Sendable) {
			return "trust"
		}
		return "submit"
	}
	return name
}

// codeOf is the code of a state in the scripts.
func codeOf(state halfmsg.State) string {
	return strconv.Itoa(slices.Index(States(), state))
}

// messagesOf reads which messages a call of a script is about, as the script's own head describes it.
func messagesOf(name string, args []string) []Message {
	switch name {
	case "create":
		return listed(args[2:], 5, nil)
	case "create_paged":
		return listed(args[1:], 4, nil)
	case "submit", "submit_paged":
		return listed(args[7:], 2, nil)
	case "trust":
		return listed(args[7:], 3, nil)
	case "move":
		rules, args := counted(args, 1)
		words, args := counted(args, 5)
		said := make([]string, 0, len(words)/5)
		for i := 0; i < len(words); i += 5 { // each begins with the number of its rule
			said = append(said, wordOf(rules, words[i]))
		}
		return listed(args, 3, said)
	case "settle_paged":
		words, rest := counted(args[1:], 3)
		said := make([]string, 0, len(words)/3)
		for i := 0; i < len(words); i += 3 { // each begins with the code of the next state
			said = append(said, map[string]string{
				codeOf(halfmsg.Sendable): "committed", codeOf(halfmsg.Done): "acked", codeOf(halfmsg.RolledBack): "rolled_back",
			}[words[i]])
		}
		return listed(rest, 3, said)
	}
	return nil
}

// counted takes a number off the arguments, and so many things of so many arguments each.
func counted(args []string, each int) (things, rest []string) {
	if len(args) == 0 {
		return nil, nil
	}
	n, err := strconv.Atoi(args[0])
	if err != nil || n < 0 || n*each >= len(args) {
		return nil, nil
	}
	return args[1 : 1+n*each], args[1+n*each:]
}

// listed reads for each producer its name, a count, and for each message so many arguments: the id first, then, where
// there are words, the number of its own.
func listed(args []string, each int, words []string) (all []Message) {
	for len(args) > 2 {
		producer := args[0]
		n, err := strconv.Atoi(args[1])
		args = args[2:]
		if err != nil || n*each > len(args) {
			return all
		}
		for i := 0; i < n*each; i += each {
			m := Message{Key: producer + "/" + args[i]}
			if number, err := strconv.Atoi(args[i+1]); words != nil && err == nil && number >= 1 && number <= len(words) {
				m.Word = words[number-1]
			}
			all = append(all, m)
		}
		args = args[n*each:]
	}
	return all
}

// held is the mark of submit.lua and trust.lua on the state of a message that was claimed for a caller who knows the
// message.
const held = 70

// claimed reads the replies of claim.lua, submit.lua and trust.lua: for each claimed message a list that begins with
// its name, or a number where the call has named the message.
func claimed(asked []Message, reply any) (all []Message) {
	claims, _ := reply.([]any)
	for i, claim := range claims {
		if code, is := claim.(int64); is && code >= held && i < len(asked) {
			all = append(all, asked[i])
		}
		if fields, _ := claim.([]any); len(fields) > 3 {
			all = append(all, Message{Key: fmt.Sprint(fields[0], "/", fields[1])})
		}
	}
	return all
}

// done reads the reply of a script for paged messages: which of the messages it has worked on. The others are left to
// the scripts for messages in the indexes.
func done(asked Event, reply any) (all []Message) {
	answers, _ := reply.([]any)
	group := 0
	for i, m := range asked.Messages {
		at := i
		if asked.script == "create_paged" { // after the time, one answer for each producer
			producer, _, _ := strings.Cut(m.Key, "/")
			before := ""
			if i > 0 {
				before, _, _ = strings.Cut(asked.Messages[i-1].Key, "/")
			}
			if producer != before {
				group++
			}
			at = group
		}
		if at < len(answers) && answers[at] != int64(0) {
			all = append(all, m)
		}
	}
	return all
}

// wordOf is the event of the rule, derived from the target state and from whether only an owner may send the event.
func wordOf(rules []string, number string) string {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > len(rules) {
		return ""
	}
	rule, kept := rules[n-1], len(halfmsg.Unfinished())
	for _, event := range halfmsg.Events() {
		if strings.HasPrefix(rule, nextStates(event)) && event.NeedsLease() == strings.Contains(rule[2*kept:], "o") {
			return event.String()
		}
	}
	return ""
}

// nextStates returns the target of an event from each kept state, as the store writes the target in its rules.
func nextStates(event halfmsg.Event) string {
	var text strings.Builder
	for _, from := range halfmsg.Unfinished() {
		digit := "-"
		if to, legal := halfmsg.Next(from, event); legal {
			digit = codeOf(to)
		}
		text.WriteString(digit)
	}
	return text.String()
}

// States are the states by their codes in the scripts.
func States() []halfmsg.State {
	return append(append([]halfmsg.State{halfmsg.None}, halfmsg.Unfinished()...), halfmsg.Done, halfmsg.RolledBack)
}

// EventOf is the event of a rule of move.lua. The cause tells a marker that is left from a deleted marker.
func EventOf(rule, cause string) (event halfmsg.Event, known bool) {
	text, name, told := strings.Cut(rule, " ")
	kept := len(halfmsg.Unfinished())
	owned := strings.Contains(text[2*kept:], "o")
	for _, event := range halfmsg.Events() {
		left := event == halfmsg.EventMarkerLeft
		switch {
		case event.NeedsLease() != owned, event.OnTimeline() != told, told && event.String() != name:
		case (left || event == halfmsg.EventMarkerDeleted) && left != (cause != ""):
		case strings.HasPrefix(text, nextStates(event)):
			return event, true
		}
	}
	limited := strings.Trim(text[:kept], "-0") == "" // a discard may be limited to a state
	return halfmsg.EventDiscard, limited && !owned && !told
}
