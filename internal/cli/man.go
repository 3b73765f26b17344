package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/ground/build"
)

type manCommand struct{}

// Help returns the text below the usage in --help.
func (c *manCommand) Help() string {
	return `One page with all commands, flags and keys of the configuration, for a machine on which there is no browser:
"msghandler man | man -l -" shows it, "msghandler man > /usr/local/share/man/man1/msghandler.1" keeps it.`
}

// Run prints the manual page.
func (c *manCommand) Run(s *commandline.Session) error {
	m := manual{}
	m.page(s.Root, config.Flags())
	_, err := io.WriteString(s.Out, m.String())
	return err
}

// manual is a page in the language of man(7).
type manual struct{ strings.Builder }

func (m *manual) page(root *kong.Node, keys []config.Key) {
	m.line(".TH", "MSGHANDLER", "1", "", "msghandler "+build.Read().Version, "msghandler")
	m.WriteString(".nh\n.ad l\n") // or names would be broken at line ends
	m.section("NAME")
	m.text("msghandler - a coordinator for half messages")
	m.section("SYNOPSIS")
	m.text("msghandler COMMAND [FLAGS]")
	m.section("DESCRIPTION")
	m.text(description)
	m.section("OPTIONS")
	m.flags(root.Flags)
	m.section("COMMANDS")
	for _, n := range leavesOf(root) {
		m.command(n)
	}
	m.section("CONFIGURATION")
	m.text("Flags win over the environment, which wins over the file. " +
		"In the file the part before the first dot is a section.")
	for _, k := range keys {
		m.key(k)
	}
	m.section("SEE ALSO")
	m.text("msghandler-dev --help, msghandler-bench --help")
	m.section("EXIT STATUS")
	for status, meaning := range []string{
		"Done.", "Failed; the reason is on standard error.", "Wrong usage.", "No such message.",
	} {
		m.item(fmt.Sprint(status), meaning)
	}
}

// leavesOf returns the visible commands below a node that can be run.
func leavesOf(n *kong.Node) (leaves []*kong.Node) {
	for _, child := range n.Children {
		switch {
		case child.Hidden:
		case child.Leaf():
			leaves = append(leaves, child)
		default:
			leaves = append(leaves, leavesOf(child)...)
		}
	}
	return leaves
}

func (m *manual) command(n *kong.Node) {
	m.line(".SS", "msghandler "+n.Summary())
	m.text(n.Help)
	if n.Detail != "" {
		m.WriteString(".PP\n")
		m.text(n.Detail)
	}
	for _, p := range n.Positional {
		m.item(p.Name, p.Help)
	}
	m.flags(n.Flags)
}

// flags describes the flags except keys of the configuration, which have a section of their own.
func (m *manual) flags(flags []*kong.Flag) {
	keys := false
	for _, f := range flags {
		if f.Group != nil {
			keys = true
			continue
		}
		m.item(flagUsage(f), f.Help+defaultOf(f.Default))
	}
	if keys {
		m.item("--KEY=VALUE", "Any key of the configuration, such as --confirm.after=2s; see CONFIGURATION.")
	}
}

// flagUsage is a flag as typed.
func flagUsage(f *kong.Flag) string {
	usage := "--" + f.Name
	if !f.IsBool() {
		usage += "=" + cmp.Or(f.PlaceHolder, strings.ToUpper(f.Name))
	}
	if f.Short != 0 {
		usage += ", -" + string(f.Short)
	}
	return usage
}

func (m *manual) key(k config.Key) {
	m.item(k.Name+", "+k.Env(), k.Meaning+defaultOf(k.Default))
}

func defaultOf(value string) string {
	if value == "" {
		return ""
	}
	return " Default: " + value + "."
}

// section begins a section.
func (m *manual) section(name string) { m.line(".SH", name) }

// item is a name and, indented below, its meaning.
func (m *manual) item(name, meaning string) {
	m.WriteString(".TP\n")
	m.line(".B", name)
	m.text(meaning)
}

// line writes a request with its arguments, each quoted.
func (m *manual) line(request string, arguments ...string) {
	m.WriteString(request)
	for _, a := range arguments {
		fmt.Fprintf(m, ` "%s"`, inRoff(a))
	}
	m.WriteByte('\n')
}

// text writes lines that the reader may break anew.
func (m *manual) text(text string) {
	for line := range strings.Lines(text) {
		m.WriteString(inRoff(strings.TrimSpace(line)) + "\n")
	}
}

// roff has a meaning of its own for these characters; hyphens must stay copyable to a shell.
var roff = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `"`, `\(dq`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`)

// inRoff escapes text. A dot at the beginning of a line would be a request.
func inRoff(text string) string {
	text = roff.Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
