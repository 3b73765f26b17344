package drill

import (
	"fmt"
	"regexp"
	"strings"
)

// tools are the programs of the commands that the drill can run.
var tools = map[string]func(w *world, args []string) error{
	"msghandler":    (*world).msghandler,
	"redis-cli":     (*world).redisCLI,
	"rabbitmqctl":   (*world).rabbitmqctl,
	"rabbitmqadmin": (*world).rabbitmqadmin,
	"systemctl":     (*world).systemctl,
	"echo":          (*world).configure,
	"sed":           (*world).edit,
	"install":       (*world).installFiles,
	"iptables":      (*world).iptables,
	"tc":            (*world).tc,
	"rm":            (*world).remove,
	"psql":          (*world).psql,
}

// runbookOf returns the commands of a block in the section of an alert.
func runbookOf(page, alert string, block int) (commands []string, err error) {
	_, section, found := strings.Cut(page, "\n### "+alert+"\n")
	if !found {
		return nil, fmt.Errorf("the page has no section %s", alert)
	}
	section, _, _ = strings.Cut(section, "\n### ")
	blocks := strings.Split(section, "\n```sh test=TestDrill\n")[1:]
	if block >= len(blocks) {
		return nil, fmt.Errorf("%s has %d blocks of commands", alert, len(blocks))
	}
	text, _, _ := strings.Cut(blocks[block], "\n```")
	for line := range strings.Lines(text) {
		program, _, _ := strings.Cut(line, " ")
		if tools[program] == nil {
			return nil, fmt.Errorf("%s: the drill does not know the program of %q", alert, line)
		}
		commands = append(commands, strings.TrimSpace(line))
	}
	return commands, nil
}

// repair runs commands with the words of the incident in place of the page's.
func (w *world) repair(commands, words []string) {
	for _, command := range commands {
		command = strings.NewReplacer(words...).Replace(command)
		w.t.Logf("$ %s", command)
		args := fields(command)
		if err := tools[args[0]](w, args[1:]); err != nil {
			w.t.Fatalf("%s: %v", command, err)
		}
	}
}

// quoted is a field of a command: in quotes, or without a space.
var quoted = regexp.MustCompile(`"([^"]*)"|'([^']*)'|(\S+)`)

// fields splits a command at its spaces. Quotes hold a field together.
func fields(command string) (all []string) {
	for _, field := range quoted.FindAllStringSubmatch(command, -1) {
		all = append(all, field[1]+field[2]+field[3])
	}
	return all
}
