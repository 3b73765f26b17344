package cause

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

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
		if got := isConsequence(c.name, c.of); got != c.want {
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
			return isConsequence(name, of) && (steps == 0 || !rooted(of, steps-1))
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

// Problems of one name are told apart by the broker, and by their times in the record of a week.
func TestConsequencesHaveBrokerAndTime(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time { return time.Date(2026, 11, 29, 2, minute, 0, 0, time.UTC) }
	alarm := Problem{Name: "rabbitmq-alarm", Subject: BrokerSubject("eu"), Since: at(20), Until: at(30)}
	for name, c := range map[string]struct {
		with func(p *Problem)
		want bool
	}{
		"same broker":       {func(*Problem) {}, true},
		"another broker":    {func(p *Problem) { p.Subject = BrokerSubject("") }, false},
		"unknown broker":    {func(p *Problem) { p.Subject = "" }, true},
		"another part":      {func(p *Problem) { p.Subject = "orders" }, true},
		"unknown times":     {func(p *Problem) { p.Since, p.Until = time.Time{}, time.Time{} }, true},
		"lasts":             {func(p *Problem) { p.Until = time.Time{} }, true},
		"began before":      {func(p *Problem) { p.Since = at(6) }, true},
		"began long before": {func(p *Problem) { p.Since = at(4) }, false},
		"ended before":      {func(p *Problem) { p.Since, p.Until = at(15), at(19) }, false},
		"began after":       {func(p *Problem) { p.Since, p.Until = at(32), at(33) }, false},
	} {
		p := Problem{Name: "rabbitmq-away", Subject: BrokerSubject("eu"), Since: at(21), Until: at(31)}
		c.with(&p)
		if got := Roots([]Problem{p, alarm})[0] == 1; got != c.want {
			t.Errorf("%s: follows is %t", name, got)
		}
	}
}
