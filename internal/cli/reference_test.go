package cli

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/dev"
	"github.com/msghandler/msghandler/dev/benchmark"
	"github.com/msghandler/msghandler/internal/cli/commandline"
)

//go:generate go test -vet=off -run TestCommandsPageMatchesHelp -update .

var update = flag.Bool("update", false, "write docs/reference/cli.md anew")

func TestCommandsPageMatchesHelp(t *testing.T) {
	const path = "../../docs/reference/cli.md"
	want := intro + "| command | does |\n|---|---|\n"
	var sections strings.Builder
	for _, p := range []commandline.Program{Program, dev.Program, benchmark.Program} {
		root, err := p.Root()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range describedNodes(root) {
			want += indexRow(n)
			describeCommand(&sections, n)
		}
	}
	want += sections.String()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s differs from what --help says; run: make generate", path)
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

func indexRow(n *kong.Node) string {
	path := strings.TrimSpace(n.FullPath())
	return fmt.Sprintf("| [`%s`](#%s) | %s |\n", strings.TrimPrefix(path, "msghandler "),
		strings.ReplaceAll(path, " ", "-"), strings.ReplaceAll(n.Help, "\n", " "))
}

func describeCommand(b *strings.Builder, n *kong.Node) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n", n.FullPath(), n.Help)
	if n.Detail != "" {
		fmt.Fprintf(b, "\n%s\n", n.Detail)
	}
	summary := n.Summary()
	if n.Parent == nil {
		summary = n.Name + summary
	}
	fmt.Fprintf(b, "\n```text\n%s\n```\n", summary)
	var rows []string
	for _, p := range n.Positional {
		rows = append(rows, fmt.Sprintf("| `%s` | | %s |", p.Name, p.Help))
	}
	keys := false
	for _, f := range n.Flags {
		switch {
		case f.Group != nil: // a key of the configuration
			keys = true
			continue
		case f.Name == "help":
			continue
		}
		rows = append(rows, flagRow(f))
	}
	if len(rows) > 0 {
		fmt.Fprintf(b, "\n| argument or flag | default | meaning |\n|---|---|---|\n%s\n", strings.Join(rows, "\n"))
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
