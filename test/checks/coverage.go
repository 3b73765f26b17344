package checks

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/wire"
)

// Coverage counts what runs have reached: the moves of the table, the replies of the scripts, the faults that struck
// while a message stood in a state, and the assertions that sometimes hold. Runs add up: see Add.
type Coverage struct {
	mu sync.Mutex
	// seen counts members, by their names.
	seen map[string]int
	// states are where the messages of the present run stand.
	states map[string]halfmsg.State
}

// NewCoverage has seen nothing.
func NewCoverage() *Coverage {
	return &Coverage{seen: map[string]int{}, states: map[string]halfmsg.State{}}
}

// See takes a call of a script with its reply.
func (c *Coverage) See(call wire.ScriptCall) {
	steps := stepsOf(call)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range steps {
		c.seen[replyMember(call.Script, s.answer)]++
		c.move(s)
	}
}

// move counts the move of a step, and of the retry that came while the owner worked.
func (c *Coverage) move(s step) {
	from := c.states[s.key]
	if s.kind == begun {
		from = halfmsg.None // an earlier message of the name has ended
	}
	if to, legal := halfmsg.Next(from, s.event); s.eventKnown && legal {
		c.seen[moveMember(halfmsg.Move{From: from, Event: s.event, To: to})]++
		if again, retried := halfmsg.Next(to, halfmsg.EventRetry); to != s.state && retried && again == s.state {
			c.seen[moveMember(halfmsg.Move{From: to, Event: halfmsg.EventRetry, To: again})]++
		}
	}
	switch {
	case s.kind == seen || s.kind == refused:
	case s.kind == unknown || s.state == halfmsg.None:
		delete(c.states, s.key)
	default:
		c.states[s.key] = s.state
	}
}

// Forget notes that Redis has lost writes: where the messages stand is not known any more.
func (c *Coverage) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.states)
}

// Struck counts a fault with the states in which messages stand now.
func (c *Coverage) Struck(fault string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	standing := map[halfmsg.State]bool{}
	for _, state := range c.states {
		standing[state] = true
	}
	for state := range standing {
		if !state.Final() {
			c.seen[faultMember(fault, state)]++
		}
	}
}

// Reached counts a Sometimes of package assert that held.
func (c *Coverage) Reached(rule string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[sometimesMember(rule)]++
}

// Add adds the counts of another run, by member.
func (c *Coverage) Add(counts map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for member, n := range counts {
		c.seen[member] += n
	}
}

// Counts are the counts by member.
func (c *Coverage) Counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.seen)
}

// Missing lists the members that no run has reached, and the exceptions that one has: then their reasons are wrong. An
// exception has a member and the reason why no run can reach it; a * at its end stands for any rest.
func (c *Coverage) Missing(members []string, exceptions map[string]string) (missing, wrong []string) {
	counts := c.Counts()
	used := map[string]bool{}
	for _, member := range members {
		exception := exceptionOf(member, exceptions)
		switch {
		case exception == "" && counts[member] == 0:
			missing = append(missing, member)
		case exception != "" && counts[member] > 0:
			wrong = append(wrong, fmt.Sprintf("%s is reached %d times, although %s", member, counts[member],
				exceptions[exception]))
		}
		used[exception] = true
	}
	for exception := range exceptions {
		if !used[exception] {
			wrong = append(wrong, exception+" is no member: remove the exception")
		}
	}
	slices.Sort(wrong)
	return missing, wrong
}

func exceptionOf(member string, exceptions map[string]string) string {
	if exceptions[member] != "" {
		return member
	}
	for exception := range exceptions {
		if begin, open := strings.CutSuffix(exception, "*"); open && strings.HasPrefix(member, begin) {
			return exception
		}
	}
	return ""
}

func moveMember(m halfmsg.Move) string {
	return fmt.Sprintf("move %v %v %v", m.From, m.Event, m.To)
}

func replyMember(script, answer string) string { return "reply " + script + " " + answer }

func faultMember(fault string, state halfmsg.State) string {
	return fmt.Sprintf("fault %s in %v", fault, state)
}

func sometimesMember(rule string) string { return "sometimes " + rule }

// Members are all members: the moves of the table, the replies that the sources of the scripts have, each fault with
// each state of an unfinished message, and the assertions that sometimes hold.
func Members(faults []string) (members []string, err error) {
	for _, m := range halfmsg.Moves() {
		members = append(members, moveMember(m))
	}
	replies, err := replies()
	if err != nil {
		return nil, err
	}
	members = append(members, replies...)
	for _, fault := range faults {
		for _, state := range halfmsg.Unfinished() {
			members = append(members, faultMember(fault, state))
		}
	}
	rules, err := sometimes()
	return append(members, rules...), err
}

// root is the tree as seen from a package of test/.
const root = "../.."

// otherReplies are the replies that are no code: lists by their lengths, and those of the scripts for paged messages.
var otherReplies = map[string][]string{
	"claim":  {"list of 2", "list of 3", "list of 4", "list of 10"},
	"submit": {"list of 10"}, "trust": {"list of 3", "list of 10"},
	"create_paged": {"left", "done"}, "submit_paged": {"left", "done", "list of 2"}, "settle_paged": {"left", "done"},
}

// replies are the replies of the scripts about messages: the codes that a script's source names, and otherReplies.
func replies() (members []string, err error) {
	for _, script := range []string{"create", "submit", "trust", "move", "replay"} {
		source, err := os.ReadFile(filepath.Join(root, "internal/store/redis/lua", script+".lua"))
		if err != nil {
			return nil, err
		}
		code := regexp.MustCompile(`(?m)--.*$`).ReplaceAllString(string(source), "")
		for _, name := range kindNames() {
			if regexp.MustCompile(`\b` + name + `\b`).MatchString(code) {
				members = append(members, replyMember(script, name))
			}
		}
	}
	for script, forms := range otherReplies {
		for _, form := range forms {
			members = append(members, replyMember(script, form))
		}
	}
	slices.Sort(members)
	return members, nil
}

// kindNames are the names of the codes by their number divided by ten, as prelude.lua lists them.
var kindNames = sync.OnceValue(func() []string {
	source, err := os.ReadFile(filepath.Join(root, "internal/store/redis/lua/prelude.lua"))
	if err != nil {
		panic(err)
	}
	line := regexp.MustCompile(`(?m)^local (OK, [A-Z, ]+) = 0, 10,`).FindStringSubmatch(string(source))
	return strings.Split(line[1], ", ")
})

// kindName is the name of the code of a reply.
func kindName(kind int64) string {
	if names := kindNames(); kind >= 0 && int(kind/10) < len(names) {
		return names[kind/10]
	}
	return fmt.Sprint("code ", kind)
}

// sometimesCall finds the rules of assert.Sometimes.
var sometimesCall = regexp.MustCompile(`assert\.Sometimes\([^"\n]*"([^"]+)"\)`)

// sometimes are the assertions that sometimes hold, by the sources of the shipped code.
func sometimes() (members []string, err error) {
	for _, room := range []string{"internal", "broker"} {
		err := filepath.WalkDir(filepath.Join(root, room), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, found := range sometimesCall.FindAllStringSubmatch(string(source), -1) {
				members = append(members, sometimesMember(found[1]))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return members, nil
}
