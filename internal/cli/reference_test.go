package cli

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/dev"
	"github.com/msghandler/msghandler/dev/benchmark"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/test/must"
)

//go:generate go test -vet=off -run TestCommandsPageMatchesHelp -update .

var update = flag.Bool("update", false, "write docs/reference/cli.md anew")

func TestCommandsPageMatchesHelp(t *testing.T) {
	const path = "../../docs/reference/cli.md"
	want := intro
	shared := sharedFlags()
	var sections strings.Builder
	for _, p := range []commandline.Program{Program, dev.Program, benchmark.Program} {
		root, err := p.Root()
		must.Succeed(t, err)
		for _, n := range describedNodes(root) {
			describeCommand(&sections, n, shared)
		}
	}
	want += describeFamilies(shared) + sections.String()
	if *update {
		must.Succeed(t, os.WriteFile(path, []byte(want), 0o600))
	}
	got, err := os.ReadFile(path)
	must.Succeed(t, err)
	if string(got) != want {
		t.Errorf("%s differs from --help; run: make generate", path)
	}
}

const intro = `# Commands

This page is made from the ` + "`--help`" + ` of each program, by ` + "`make generate`" + `;
a test fails when they differ.

Exit status: 0 done, 1 failed (the reason is on standard error), 2 wrong usage, 3 no such message, 4 a
producer was not reached. ` + "`--help`" + ` after a command, or ` + "`help`" + ` before the command, prints the help of
the command, and ` + "`--version`" + ` prints the version. A message is named
` + "`PRODUCER/ID`" + `. Commands with ` + "`--output`" + ` print a table for people,
or ` + "`json`" + ` or ` + "`yaml`" + ` for programs; [their fields](cli-json.md) stay.
Commands that take longer than a second report progress on standard error.

On a terminal, states and severities have colours (` + "`NO_COLOR`" + ` and ` + "`TERM=dumb`" + ` turn them off).
Tables fit its width: the last column is wrapped, and a narrow terminal loses columns, but no name and no cause.
What is longer than the terminal goes through ` + "`PAGER`" + `, by default ` + "`less`" + `
(` + "`PAGER=cat`" + `: none). A pipe gets whole lines, without colours. Times are of UTC.

` + "`msghandler man | man -l -`" + ` shows all this on a machine
without a browser, and ` + "`msghandler completion`" + ` makes a shell complete it:

` + "```sh" + `
source <(msghandler completion bash)      # in ~/.bashrc
source <(msghandler completion zsh)       # in ~/.zshrc, after compinit
msghandler completion fish | source       # in ~/.config/fish/config.fish
` + "```" + `

`

// describedNodes are the commands of a program, or the program itself where it has no commands.
func describedNodes(root *kong.Node) []*kong.Node {
	if leaves := leavesOf(root); len(leaves) > 0 {
		return leaves
	}
	return []*kong.Node{root}
}

// family is a set of flags that several commands have. The page describes the flags once.
type family struct {
	title string
	flags []string
	// rows are the flags' rows, by name, as the first command with all of them has them.
	rows map[string]string
}

func sharedFlags() []*family {
	return []*family{
		{title: "Output", flags: []string{"output"}},
		{
			title: "Connection",
			flags: []string{"server", "context", "tls", "tls-ca", "tls-cert", "tls-key", "tls-name", "token-file", "timeout"},
		},
		{title: "Messages", flags: []string{
			"state", "producer", "exchange", "broker", "older-than", "error", "cause", "id", "routing-key", "header",
		}},
		{title: "Finished messages", flags: []string{
			"producer", "id", "state", "exchange", "routing-key", "header", "since", "until",
		}},
		{title: "Watch", flags: []string{"watch", "every"}},
		{title: "Queue of dead letters", flags: []string{"direct", "broker", "url", "amqp.url", "queue"}},
		{title: "Dead letters", flags: []string{"producer", "consumer", "exchange", "cause", "older-than"}},
	}
}

// share takes the flags of the family out of a command's rows, by flag. A command with a flag of another meaning keeps
// its own row.
func (f *family) share(rows map[string]string) (shared bool) {
	for _, name := range f.flags {
		if rows[name] == "" {
			return false
		}
	}
	if f.rows == nil {
		f.rows = maps.Clone(rows)
	}
	for _, name := range f.flags {
		if rows[name] == f.rows[name] {
			delete(rows, name)
		}
	}
	return true
}

func describeFamilies(all []*family) string {
	var b strings.Builder
	b.WriteString("## Shared flags\n\nA row of the command itself counts before the row here.\n")
	for _, f := range all {
		fmt.Fprintf(&b, "\n### %s\n\n%s", f.title, flagsHead)
		for _, name := range f.flags {
			b.WriteString(f.rows[name] + "\n")
		}
	}
	return b.String()
}

const flagsHead = "| argument or flag | default | meaning |\n|---|---|---|\n"

func describeCommand(b *strings.Builder, n *kong.Node, shared []*family) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n", n.FullPath(), n.Help)
	if n.Detail != "" {
		fmt.Fprintf(b, "\n%s\n", n.Detail)
	}
	summary := n.Summary()
	if n.Parent == nil {
		summary = n.Name + summary
	}
	fmt.Fprintf(b, "\n```text\n%s\n```\n", summary)
	var rows, names, families []string
	for _, p := range n.Positional {
		rows = append(rows, fmt.Sprintf("| `%s` | | %s |", p.Name, p.Help))
	}
	keys, own := false, map[string]string{}
	for _, f := range n.Flags {
		switch {
		case f.Group != nil: // a key of the configuration
			keys = true
		case f.Name != "help":
			names, own[f.Name] = append(names, f.Name), flagRow(f)
		}
	}
	for _, f := range shared {
		if f.share(own) {
			anchor := strings.ReplaceAll(strings.ToLower(f.title), " ", "-")
			families = append(families, fmt.Sprintf("[%s](#%s)", strings.ToLower(f.title), anchor))
		}
	}
	for _, name := range names {
		if own[name] != "" {
			rows = append(rows, own[name])
		}
	}
	if len(rows) > 0 {
		fmt.Fprintf(b, "\n%s%s\n", flagsHead, strings.Join(rows, "\n"))
	}
	if len(families) > 0 {
		fmt.Fprintf(b, "\nShared flags: %s.\n", strings.Join(families, ", "))
	}
	if keys {
		b.WriteString("\nEvery key of the [configuration](configuration.md) is a flag as well, " +
			"such as `--confirm.after=2s`.\n")
	}
}

func flagRow(f *kong.Flag) string {
	name := "`" + strings.ReplaceAll(flagUsage(f), ", ", "`, `") + "`"
	value := f.Default
	if value != "" {
		value = "`" + value + "`"
	}
	return fmt.Sprintf("| %s | %s | %s |", name, value, f.Help)
}
