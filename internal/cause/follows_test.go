package cause

import (
	"os"
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
	for _, name := range names {
		if !strings.Contains(string(findings)+string(alerts), "\n### "+name+"\n") {
			t.Errorf("no page explains %s", name)
		}
		if Follows(name, name) {
			t.Errorf("%s follows itself", name)
		}
	}
}
