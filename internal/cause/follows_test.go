package cause

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/test/must"
)

// What people see of a full disk is one problem. Problems that have nothing to do with each other stay apart.
func TestConsequencesFollowTheirCause(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, of string
		want     bool
	}{
		{"redis-memory", "redis-disk", true},
		{"MsghandlerBacklog", "redis-disk", true},
		{"rabbitmq-away", "rabbitmq-alarm", true},
		{"messages-stuck", "rabbitmq-alarm", true},
		{"MsghandlerBacklog", "broker-away", true},
		{"MsghandlerPendingOld", "producer-away", true},
		{"MsghandlerFull", "redis-full", true},
		{"MsghandlerFull", "redis-memory", false},
		{"redis-disk", "redis-memory", false},
		{"MsghandlerPendingOld", "rabbitmq-away", false},
		{"MsghandlerDead", "rabbitmq-away", false},
		{"rabbitmq-alarm", "redis-disk", false},
		{"redis-disk", "redis-disk", false},
	} {
		if got := Follows(c.name, c.of); got != c.want {
			t.Errorf("%s follows %s: %t", c.name, c.of, got)
		}
	}
	findings, err := os.ReadFile("../../docs/reference/findings.md")
	must.Succeed(t, err)
	alerts, err := os.ReadFile("../../docs/reference/alerts.md")
	must.Succeed(t, err)
	var names []string
	for _, c := range consequences {
		names = append(append(names, c.of...), c.follow...)
	}
	// rooted says that the way from a problem to the problems behind it ends after so many steps.
	var rooted func(name string, steps int) bool
	rooted = func(name string, steps int) bool {
		return !slices.ContainsFunc(names, func(of string) bool {
			return Follows(name, of) && (steps == 0 || !rooted(of, steps-1))
		})
	}
	for _, name := range names {
		if !strings.Contains(string(findings)+string(alerts), "\n### "+name+"\n") {
			t.Errorf("no page explains %s", name)
		}
		if !rooted(name, 3) {
			t.Errorf("%s follows itself, or too many others", name)
		}
	}
}
