package cli_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/test/programs"
)

func TestCompletionOffersWords(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string][]string{
		"dl":                      {"dlq"},
		"dlq ":                    {"queues", "list", "count", "show", "replay", "discard"},
		"retry --st":              {"--state"},
		"retry --state ":          {"pending", "sendable", "abandoned", "dead", "acknowledged"},
		"retry --state de":        {"dead"},
		"retry --state = de":      {"dead"}, // as bash takes it apart
		"retry --state=de":        {"--state=dead"},
		"retry --yes --state dea": {"dead"}, // --yes takes no value
		"stats --output ":         {"table", "json", "yaml"},
		"serve --delete_bus":      {"--delete_business.when"},
		"list --conf":             {"--config"}, // a flag of all commands
		"completion ":             {"bash", "zsh", "fish"},
		"nonsense --x":            nil,
		"list --limit ":           nil,
		"h":                       {"help", "history"},
		"help top":                {"top"},
	} {
		got := run(nil, append([]string{"__complete", "--"}, strings.Split(typed, " ")...)...)
		var words []string
		for line := range strings.Lines(got.out) {
			word, _, _ := strings.Cut(line, "\t")
			words = append(words, word)
		}
		slices.Sort(words)
		if slices.Sort(want); !slices.Equal(words, want) || got.status != 0 {
			t.Errorf("%q becomes %q, want %q (%s)", typed, words, want, got.err)
		}
	}
	first := run(nil, "__complete", "--", "")
	if strings.Contains(first.out, "__complete") || !strings.Contains(first.out, "stats\tCount") {
		t.Errorf("at first there are\n%s", first.out)
	}
	run(nil, "completion", "tcsh").want(t, 2, "", "bash")
}

// TestBashCompletes has a real bash complete with the real program.
func TestBashCompletes(t *testing.T) {
	t.Parallel()
	script := run(nil, "completion", "bash").out + `
COMP_WORDS=("$1" retry --state = de) COMP_CWORD=4
_msghandler
echo "${COMPREPLY[@]}"
COMP_WORDS=("$1" d) COMP_CWORD=1
_msghandler
echo "${COMPREPLY[@]}"`
	out, err := exec.Command("bash", "-c", script, "bash", programs.Path("msghandler")).CombinedOutput()
	if err != nil || string(out) != "dead\ndiscard dlq doctor\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
