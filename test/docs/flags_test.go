package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/internal/config"
)

var flagPattern = regexp.MustCompile(`(?:^|\s|["'])(--[a-z][a-z0-9._-]*[a-z0-9])`)

// checkFlag demands that one of our programs or examples has a flag that a sentence names without a command, or that a
// block of the page uses the flag.
func checkFlag(p *page, named string) string {
	found := flagPattern.FindStringSubmatch(named)
	if found == nil || ourFlags()[found[1]] || configKey(found[1]) {
		return ""
	}
	for _, b := range p.blocks {
		if strings.Contains(b.text(), found[1]) {
			return ""
		}
	}
	return fmt.Sprintf("no program of ours has the flag %s, and no block of the page: correct the flag", found[1])
}

func configKey(named string) bool {
	_, is := config.Find(strings.TrimPrefix(named, "--"))
	return is
}

// ourFlags are the flags of all programs and of the examples.
var ourFlags = sync.OnceValue(func() map[string]bool {
	flags := map[string]bool{}
	for _, newParser := range parsers.of {
		if parser, err := newParser(); err == nil {
			addFlags(flags, parser.Model.Node)
		}
	}
	var texts []string
	for _, demo := range []string{"producer-demo", "consumer-demo"} {
		text, _ := help(demo)
		texts = append(texts, text)
	}
	files, _ := filepath.Glob(filepath.Join(root, "examples/*/*.py"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		texts = append(texts, string(text))
	}
	for _, found := range flagPattern.FindAllStringSubmatch(strings.Join(texts, "\n"), -1) {
		flags[found[1]] = true
	}
	return flags
})

// addFlags adds the flags of a command and of its subcommands.
func addFlags(to map[string]bool, command *kong.Node) {
	for _, flag := range command.Flags {
		to["--"+flag.Name] = true
		for _, alias := range flag.Aliases {
			to["--"+alias] = true
		}
	}
	for _, child := range command.Children {
		addFlags(to, child)
	}
}
