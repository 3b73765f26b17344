package commandline

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// complete prints the words that the last typed word may become: one a line, with a tab before the meaning.
func complete(out io.Writer, root *kong.Node, typed []string) error {
	if len(typed) > 0 && typed[0] == "--" {
		typed = typed[1:]
	}
	if len(typed) > 1 && typed[0] == helpWord {
		typed = typed[1:]
	}
	for _, found := range candidates(root, typed) {
		if _, err := fmt.Fprintf(out, "%s\t%s\n", found.word, found.help); err != nil {
			return err
		}
	}
	return nil
}

// candidate is a possible word, with its meaning.
type candidate struct{ word, help string }

// candidates returns the words that can complete the last word.
func candidates(node *kong.Node, words []string) []candidate {
	// bash takes --state=dead for three words.
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "=" })
	if len(words) == 0 {
		words = []string{""}
	}
	current := words[len(words)-1]
	node, open := followWords(node, words[:len(words)-1])
	name, value, assigned := strings.Cut(current, "=")
	var all []candidate
	switch {
	case open != nil:
		all = values(open.Enum, open.Name, "")
	case assigned && strings.HasPrefix(name, "--"):
		if open = flagOf(node, name); open != nil {
			all = values(open.Enum, open.Name, name+"=")
		}
		current = name + "=" + value
	case strings.HasPrefix(current, "-"):
		all = flagsOf(node)
	default:
		all = append(commandsOf(node), positionals(node)...)
	}
	return slices.DeleteFunc(all, func(c candidate) bool { return !strings.HasPrefix(c.word, current) })
}

// followWords follows the words from the root to a command; open is the flag whose value comes next.
func followWords(node *kong.Node, words []string) (at *kong.Node, open *kong.Flag) {
	for _, word := range words {
		switch {
		case open != nil:
			open = nil
		case strings.HasPrefix(word, "-"):
			if open = flagOf(node, word); open != nil && open.IsBool() {
				open = nil
			}
		default:
			for _, child := range node.Children {
				if child.Name == word {
					node = child
				}
			}
		}
	}
	return node, open
}

// flagOf finds a flag of a command, or of a command above, by the word typed.
func flagOf(node *kong.Node, word string) *kong.Flag {
	for node = commandAt(node); node != nil; node = node.Parent {
		for _, flag := range node.Flags {
			if word == "--"+flag.Name || flag.Short != 0 && word == "-"+string(flag.Short) {
				return flag
			}
		}
	}
	return nil
}

// commandAt is the command that runs when no more words follow.
func commandAt(node *kong.Node) *kong.Node {
	if node.DefaultCmd != nil {
		return node.DefaultCmd
	}
	return node
}

func flagsOf(node *kong.Node) (all []candidate) {
	for node = commandAt(node); node != nil; node = node.Parent {
		for _, flag := range node.Flags {
			all = append(all, candidate{"--" + flag.Name, flag.Help})
		}
	}
	return all
}

func commandsOf(node *kong.Node) (all []candidate) {
	for _, child := range node.Children {
		if !child.Hidden {
			all = append(all, candidate{child.Name, child.Help})
		}
	}
	if node.Parent == nil {
		all = append(all, candidate{helpWord, "Print the help of a command."})
	}
	return all
}

func positionals(node *kong.Node) (all []candidate) {
	for _, positional := range node.Positional {
		all = append(all, values(positional.Enum, positional.Name, "")...)
	}
	return all
}

// values are the values of a flag or an argument that takes a list.
func values(enum, name, before string) (all []candidate) {
	if name == "state" {
		for _, state := range halfmsg.Unfinished() {
			all = append(all, candidate{before + state.String(), ""})
		}
		return all
	}
	for value := range strings.SplitSeq(enum, ",") {
		if value != "" {
			all = append(all, candidate{before + value, ""})
		}
	}
	return all
}
