// Package model holds the model of the protocol in docs/evidence/model to the code, and runs its small instances.
package model

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/servers"
)

const folder = "../../docs/evidence/model"

func TestModelMovesMatchTheCode(t *testing.T) {
	t.Parallel()
	text := source(t)
	line := regexp.MustCompile(`(?m)^ +:: state == s_(\w+) && event == e_(\w+) -> to = s_(\w+)$`)
	var modelled, coded []string
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		modelled = append(modelled, fmt.Sprintf("%s --%s--> %s", m[1], m[2], m[3]))
	}
	for _, m := range halfmsg.Moves() {
		coded = append(coded, fmt.Sprintf("%s --%s--> %s", m.From, m.Event, m.To))
	}
	same(t, "moves", modelled, coded)
	// Each line of the table must be one that the expression above reads.
	if lines := strings.Count(text, ":: state == "); lines != len(modelled) {
		t.Errorf("the model's table has %d lines, of which %d can be read", lines, len(modelled))
	}
}

func TestModelStatesMatchTheCode(t *testing.T) {
	t.Parallel()
	var states, events []string
	for _, s := range halfmsg.States() {
		states = append(states, s.String())
	}
	for _, e := range halfmsg.Events() {
		events = append(events, e.String())
	}
	text := source(t)
	same(t, "states", declared(text, "s_"), states)
	same(t, "events", declared(text, "e_"), events)
}

// TestSmallModelInstancesHold: promises hold in every state of the small instances, and each known defect is found.
func TestSmallModelInstancesHold(t *testing.T) {
	t.Parallel()
	servers.Tool(t, "spin")
	servers.Tool(t, "gcc")
	out, err := exec.CommandContext(t.Context(), filepath.Join(folder, "check.sh"), "small").CombinedOutput()
	t.Logf("\n%s", out)
	if err != nil {
		t.Errorf("docs/evidence/model/check.sh small: %v", err)
	}
}

func source(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "halfmsg.pml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// declared lists the names of the mtype declaration whose names begin with prefix.
func declared(text, prefix string) (names []string) {
	for _, m := range regexp.MustCompile(`mtype = \{([^}]*)\}`).FindAllStringSubmatch(text, -1) {
		for _, name := range strings.Split(m[1], ",") {
			if short, ok := strings.CutPrefix(strings.TrimSpace(name), prefix); ok {
				names = append(names, short)
			}
		}
	}
	return names
}

func same(t *testing.T, what string, modelled, coded []string) {
	t.Helper()
	slices.Sort(modelled)
	slices.Sort(coded)
	if !slices.Equal(modelled, coded) {
		t.Errorf("the model's %s differ from the code's; model or code is wrong:\nmodel %q\ncode  %q", what, modelled, coded)
	}
}
