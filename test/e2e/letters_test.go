package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

// The shipped commands look at dead letters and change them through a coordinator: by role, within the policy of the
// letters' producer, and with a record.
func TestLettersAreChangedThroughTheCoordinator(t *testing.T) {
	w, a, dir := newWorld(t), certstest.NewAuthority(t), t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	certFile, keyFile := a.Issue("127.0.0.1")
	ch := w.channel()
	for _, queue := range []string{"payments", "payments.dead", "payroll"} {
		if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	for id, key := range map[string]string{"1": "payments", "2": "payments", "3": "payroll"} {
		if err := ch.PublishWithContext(t.Context(), "", "payments.dead", true, false, amqp.Publishing{
			MessageId: id, AppId: "orders", Body: []byte("the body"), DeliveryMode: amqp.Persistent, Headers: amqp.Table{
				consumer.HeaderQueue: "payments", consumer.HeaderExchange: "", consumer.HeaderRoutingKey: key,
			},
		}); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{}
	for _, role := range []string{"viewer", "reader", "operator", "admin"} {
		made, status := programs.Run(t, "msghandler", nil, "token", "new", role, "--file", tokens, "--role", role)
		i := strings.Index(made, "mh_")
		if status != 0 || i < 0 {
			t.Fatalf("token new ends with %d: %s", status, made)
		}
		files[role] = filepath.Join(dir, role)
		if err := os.WriteFile(files[role], []byte(strings.Fields(made[i:])[0]+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.startCoordinators(1, "MSGHANDLER_GRPC_TLS_CERT="+certFile, "MSGHANDLER_GRPC_TLS_KEY="+keyFile,
		"MSGHANDLER_ACCESS_TOKEN_FILE="+tokens, "MSGHANDLER_DEAD_LETTERS_PAYMENTS_QUEUE=payments.dead",
		"MSGHANDLER_PRODUCERS_ORDERS_ROUTING_KEYS=payments")
	as := func(role string, args ...string) (string, int) {
		return programs.Run(t, "msghandler",
			[]string{"MSGHANDLER_SERVER=" + w.coordinators[0].grpc, "MSGHANDLER_TLS_CA=" + a.File},
			append(args, "--token-file", files[role])...)
	}
	const queue = "--queue=payments"
	if said, _ := as("viewer", "dlq", "show", queue, "orders/1"); strings.Contains(said, "the body") {
		t.Errorf("a viewer sees:\n%s", said)
	}
	for _, step := range []struct {
		role   string
		args   []string
		status int
		want   string
	}{
		{"viewer", []string{"dlq", "list", queue, "--output=json"}, 0, `"id": "3"`},
		{"viewer", []string{"dlq", "count", queue}, 0, "3 "},
		{"reader", []string{"dlq", "show", queue, "orders/1"}, 0, "the body"},
		{"reader", []string{"dlq", "replay", queue, "orders/1"}, 1, "the method needs operator"},
		{"operator", []string{"dlq", "discard", queue, "orders/1"}, 1, "the method needs admin"},
		{"operator", []string{"dlq", "replay", queue, "--all", "-n"}, 0, "2 would be replayed\n1 dead letter would stay: "},
		{"operator", []string{"dlq", "replay", queue, "--all", "--yes", "--reason=fixed"}, 1, "replayed 2\n"},
		{"admin", []string{"dlq", "discard", queue, "orders/3", "--reason=forged"}, 0, "discarded 1\n"},
		{"admin", []string{"dlq", "list", queue}, 0, "no dead letters"},
	} {
		if said, status := as(step.role, step.args...); status != step.status || !strings.Contains(said, step.want) {
			t.Errorf("%s %v ends with %d, want %d and %q:\n%s", step.role, step.args, status, step.status, step.want, said)
		}
	}
	servers.Eventually(t, 20*time.Second, "the changes and the refusals are in the audit", func() bool {
		made, _ := as("admin", "audit", "--action=_letters")
		refused, _ := as("admin", "audit", "--refused")
		return strings.Contains(made, "token:operator") && strings.Contains(made, "discard_dead_letters") &&
			strings.Contains(refused, "DiscardDeadLetters") && strings.Contains(refused, "ReplayDeadLetters")
	})
	for name, want := range map[string]int{"payments": 2, "payroll": 0, "payments.dead": 0} {
		if q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil); err != nil || q.Messages != want {
			t.Errorf("%s has %d messages, want %d: %v", name, q.Messages, want, err)
		}
	}
}
