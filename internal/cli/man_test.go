package cli

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// The manual is set without a warning, and names every command, flag and key as typed.
func TestManualIsCompleteAndFormatted(t *testing.T) {
	t.Parallel()
	groff := servers.Tool(t, "groff")
	var page, warnings, set strings.Builder
	if status := Run(t.Context(), commandline.Process{Args: []string{"man"}, Out: &page, Err: &warnings}); status != 0 {
		t.Fatal(status, warnings.String())
	}
	cmd := exec.CommandContext(t.Context(), groff, "-man", "-ww", "-T", "utf8", "-P", "-cbou", "-r", "LL=500n")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(page.String()), &set, &warnings
	if err := cmd.Run(); err != nil || warnings.Len() > 0 {
		t.Errorf("groff: %v\n%s", err, warnings.String())
	}
	root, err := Program.Root()
	must.Succeed(t, err)
	var all []string
	for _, n := range leavesOf(root) {
		all = append(all, n.FullPath(), n.Help)
		for _, p := range n.Positional {
			all = append(all, p.Help)
		}
		all = append(all, ownFlags(n.Flags)...)
	}
	for _, k := range config.Keys() {
		all = append(all, k.Name+", "+k.Env(), k.Meaning)
	}
	for _, want := range all {
		if !strings.Contains(oneSpace(set.String()), oneSpace(want)) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// ownFlags are a command's flags as typed, with their meaning.
func ownFlags(flags []*kong.Flag) (own []string) {
	for _, f := range flags {
		if f.Group == nil {
			own = append(own, flagUsage(f)+" "+f.Help)
		}
	}
	return own
}

// oneSpace makes all white space single spaces, however lines were broken.
func oneSpace(text string) string { return strings.Join(strings.Fields(text), " ") }

func TestManualEscapesText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain": "plain", ".file": `\&.file`, "--flag": `\-\-flag`, `a\b`: `a\eb`, `say "it's"`: `say \(dqit\(aqs\(dq`,
	} {
		if got := inRoff(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
