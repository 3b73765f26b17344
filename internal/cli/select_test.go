package cli_test

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

func TestFiltersReachTheCoordinator(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	env := []string{"MSGHANDLER_SERVER=" + c.addr}
	filter := []string{
		"--state=dead", "--producer=orders", "--exchange=shop", "--older-than=10m", "--error=no exchange", "--broker=events",
	}
	run(env, append([]string{"list", "--limit=5"}, filter...)...).want(t, 0, "orders/1001", "")
	run(env, append([]string{"retry", "--yes"}, filter...)...).want(t, 0, "retried 3\n", "")
	run(env, append([]string{"discard", "-n"}, filter...)...).want(t, 0, "3 would be discarded\n", "")
	want := `list STATE_DEAD orders 5 from "" to shop at events older 10m0s error no exchange; ` +
		`retry STATE_DEAD orders 1000  to shop at events older 10m0s error no exchange; ` +
		`would discard STATE_DEAD orders 1000  to shop at events older 10m0s error no exchange`
	if asked := c.asked(); asked != want {
		t.Errorf("asked %s\nwant  %s", asked, want)
	}
	for flag, want := range map[string]string{
		"--cause=no …": "cause no …", "--id=o-1": "id o-1", "--routing-key=paid": "key paid",
		"--header=tenant=a=b": "header tenant=a=b",
	} {
		run(env, "list", "--state=dead", flag).want(t, 0, "orders/1001", "")
		run(env, "retry", "--yes", "--state=dead", flag).want(t, 0, "retried 3\n", "")
		run(env, "discard", "--yes", "--state=dead", flag).want(t, 0, "discarded 3\n", "")
		run(env, "list", "--group", "--state=dead", flag).want(t, 0, "COUNT", "estimates")
		if asked := c.asked(); strings.Count(asked, want) != 4 {
			t.Errorf("%s: asked %s", flag, asked)
		}
	}
	run(env, "retry", "--state=dead", "--header=tenant").want(t, 2, "", "NAME=VALUE")
	run(env, "retry", "orders/1", "--exchange=shop").want(t, 2, "", "not both")
	run(env, "retry", "--exchange=shop").want(t, 2, "", "which messages?")
}

// A filter that a script leaves empty would select all messages.
func TestEmptyFiltersSelectNothing(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	env := []string{"MSGHANDLER_SERVER=" + c.addr}
	for command, text := range map[string]any{
		"discard": operate.MessageText{}, "retry": operate.MessageText{}, "replay": operate.FinishedText{},
		"dlq discard --queue=payments": operate.DeadLetterText{},
	} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(text)) {
			flag := strings.ToLower(wordEnd.ReplaceAllString(field.Name, "$1-$2"))
			args := append(strings.Fields(command), "--yes", "--"+flag+"=")
			run(env, args...).want(t, 2, "", "--"+flag+": is empty, and would select all messages")
		}
	}
	// An age of 0 is no filter.
	run(env, "dlq", "discard", "--queue=payments", "--yes", "--older-than=0s").want(t, 2, "", "or give a filter")
	run(env, "replay", "--yes", "--until=0s").want(t, 2, "", "which messages?")
	if asked := c.asked(); asked != "" {
		t.Errorf("asked %s", asked)
	}
}

var wordEnd = regexp.MustCompile(`([a-z])([A-Z])`)

// list --group prints a line for each group, and says where counts are estimates and groups are missing.
func TestListGroupsMessages(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	env := []string{"MSGHANDLER_SERVER=" + c.addr}
	run(env, "list", "--group", "--state=dead").want(t, 0,
		"312     dead    orders     (default)   3 h ago   3 min ago   1001      no exchange …",
		"the counts of dead messages are estimates from 2000 of 9000; a rare group may be missing")
	run(env, "list", "--group", "--state=dead").want(t, 0, "CAUSE", "4 smaller groups of dead messages are left out")
	run(env, "list", "--group", "--state=dead", "--output=json").want(t, 0, `"example_error": "no exchange 7"`, "")
	run(env, "list", "--group").want(t, 0, "abandoned", "of abandoned messages")
	c.grouped = map[msghandlerv1.State]*adminv1.GroupMessagesResponse{}
	run(env, "list", "--group", "--output=json").want(t, 0, `"groups": []`, "")
	run(env, "list", "--group", "-o", "name").want(t, 2, "", "groups have no names")
}

func TestChangeContinuesUntilComplete(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	for i := range 2500 {
		c.add(msghandlerv1.State_STATE_ABANDONED, "many", fmt.Sprint(i))
	}
	env := []string{"MSGHANDLER_SERVER=" + c.addr}
	run(env, "retry", "--state=abandoned", "--limit=0", "--yes").want(t, 0, "retried 2500\n", "")
	if asked := c.asked(); strings.Count(asked, "; ") != 2 {
		t.Errorf("asked %s", asked)
	}
	run(env, "retry", "--state=abandoned", "--limit=1200", "--yes").
		want(t, 0, "retried 1200; more match, run it again or raise --limit\n", "")
	run(env, "discard", "--state=abandoned", "--limit=0", "--dry-run").want(t, 0, "2500 would be discarded\n", "")
}

// A refused change is not reported as if another try could succeed.
func TestRefusedChangeOffersNoRetry(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	for i := range 2500 {
		c.add(msghandlerv1.State_STATE_ABANDONED, "many", fmt.Sprint(i))
	}
	env := []string{"MSGHANDLER_SERVER=" + c.addr}
	c.err = status.Error(codes.InvalidArgument, "state: sendable messages are not discarded")
	for _, output := range []string{"table", "json"} {
		run(env, "discard", "--state=sendable", "--yes", "--output="+output).want(t, 2, "", "are not discarded")
	}
	c.asked()
	c.err, c.errAfter = status.Error(codes.Internal, "broken"), 2
	run(env, "retry", "--state=abandoned", "--limit=0", "--yes").
		want(t, 1, "retried 2000; more match, run it again\n", "broken")
}

func TestNamesComeFromStandardInput(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	env := []string{"MSGHANDLER_SERVER=" + c.addr}
	for _, how := range [][]string{{"list", "--state=dead"}, {"list", "--state=dead", "-o", "name"}} {
		listed := run(env, how...)
		c.asked()
		runWith(listed.out, env, "retry", "-", "--yes").want(t, 0, "retried 3\n", "")
		if asked := c.asked(); asked != "retry orders/1001; retry orders/1002; retry orders/1003" {
			t.Errorf("asked %s", asked)
		}
		runWith(listed.out, env, "discard", "-").want(t, 2, "", "3 messages are named on standard input")
		runWith(listed.out, env, "discard", "-", "--dry-run").want(t, 0, "3 would be discarded\n", "")
		if asked := c.asked(); !strings.HasPrefix(asked, "would discard") || strings.Contains(asked, "; discard") {
			t.Errorf("asked %s", asked)
		}
	}
	runWith("\n\n", env, "retry", "-", "--yes").want(t, 2, "", "no name on standard input")
	runWith("1001\n", env, "retry", "-", "--yes").want(t, 2, "", "PRODUCER/ID")
}

func TestYAMLOutput(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	env := []string{"MSGHANDLER_SERVER=" + c.addr}
	c.records[0].Message.Body = []byte("true")
	c.records[0].LastError = "a: b # c\n- d"
	got := run(env, "show", "orders/1001", "--output=yaml")
	var document struct {
		ID, Body, State string
		LastError       string `yaml:"last_error"`
		PublishAttempts int    `yaml:"publish_attempts"`
	}
	if err := yaml.Unmarshal([]byte(got.out), &document); err != nil || got.status != 0 {
		t.Fatalf("%v: %+v", err, got)
	}
	if document.ID != "1001" || document.Body != "true" || document.LastError != "a: b # c\n- d" ||
		document.PublishAttempts != 4 {
		t.Errorf("got %+v of\n%s", document, got.out)
	}
	if !strings.HasPrefix(got.out, "producer: orders\nid: \"1001\"\nstate: dead\n") {
		t.Errorf("the YAML is not in blocks, in the order of the JSON:\n%s", got.out)
	}
	run(env, "list", "-o", "yaml", "--state=sendable").want(t, 0, "messages: []\n", "")
}
