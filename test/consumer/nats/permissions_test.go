package nats_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats/natsconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
	"github.com/msghandler/msghandler/test/consumer/logs"
	"github.com/msghandler/msghandler/test/consumer/permissions"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/servers/natsserver"
)

// guarded is a world with an admin, and with users that have the permissions of the page for a consumer of their name
// without the subjects that begin with a text.
func guarded(t *testing.T, without map[string]string) *world {
	t.Helper()
	quoted := func(row, user, without string) string {
		var subjects []string
		for _, subject := range permissions.Of(t, row) {
			if without == "" || !strings.HasPrefix(subject, without) {
				subjects = append(subjects, fmt.Sprintf("%q", strings.ReplaceAll(subject, "payments", user)))
			}
		}
		if len(subjects) == 0 {
			return "nothing" // an empty list would allow all
		}
		return strings.Join(subjects, ", ")
	}
	users := `{ user: admin, password: a }`
	for user, subject := range without {
		users += fmt.Sprintf(`
			{ user: %s, password: p, permissions: { publish: [%s], subscribe: [%s] } }`,
			user, quoted("NATS: publish", user, subject), quoted("NATS: subscribe", user, subject))
	}
	w := &world{t: t, server: servers.NATS(t, "authorization { users: ["+users+"] }")}
	w.js = natsserver.Stream(t, w.as("admin:a"), "ORDERS", "orders.>")
	config := jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"DEAD.>"}}
	if _, err := w.js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) as(login string) string {
	return strings.Replace(w.server.URL, "nats://", "nats://"+login+"@", 1)
}

// user is the configuration of a user's consumer.
func (w *world) user(name string, log *logs.Lines) natsconsumer.Config {
	config := w.config()
	config.URL, config.Name, config.Logger = w.as(name+":p"), name, log.Logger()
	config.Observer = &consumertest.Depths{}
	config.DepthInterval = 20 * time.Millisecond
	return config
}

func TestConsumerNeedsPermissionsOfPage(t *testing.T) {
	t.Parallel()
	w, log := guarded(t, map[string]string{"payments": ""}), &logs.Lines{}
	w.publish("1", "fails", "rejected")
	config := w.user("payments", log)
	config.Subjects = []string{"orders.paid"}
	stop := w.run(config, func(_ context.Context, m *consumer.Message) error {
		switch {
		case m.ID == "rejected":
			return consumer.Reject(errors.New("no JSON"))
		case m.ID == "fails" && m.Deliveries == 0:
			return errors.New("no database")
		}
		return nil
	})
	w.settled()
	observed := config.Observer.(*consumertest.Depths)
	observed.AwaitWaiting(t, "ORDERS", 0)
	observed.AwaitDead(t, "DEAD", 1)
	if err := stop(); err != nil {
		t.Error(err)
	}
	w.wantDead("rejected")
	if strings.Contains(strings.ToLower(log.String()+w.server.Log()), "violation") {
		t.Errorf("the user lacks a permission: %s\n%s", log, w.server.Log())
	}
}

// The server answers no forbidden request. Its error comes apart from any answer.
func TestMissingPermissionsAreNamed(t *testing.T) {
	t.Parallel()
	without := map[string]string{
		"create": "$JS.API.CONSUMER.CREATE", "info": "$JS.API.CONSUMER.INFO", "next": "$JS.API.CONSUMER.MSG.NEXT",
		"ack": "$JS.ACK", "dead": "DEAD.>", "depth": "$JS.API.STREAM.INFO", "inbox": "_INBOX",
	}
	w := guarded(t, without)
	w.publish("rejected")
	for user, subject := range without {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			var log logs.Lines
			config := w.user(user, &log)
			w.run(config, func(context.Context, *consumer.Message) error { return consumer.Reject(errors.New("no JSON")) })
			want := "the user may not publish to " + strings.TrimSuffix(subject, ">")
			if user == "inbox" {
				want = "the user may not subscribe to the subjects of its answers"
			}
			servers.Eventually(t, time.Minute, want, func() bool { return strings.Contains(log.String(), want) })
			if strings.Contains(log.String(), "deadline exceeded") {
				t.Errorf("the consumer waited for an answer: %s", log.String())
			}
		})
	}
}

// A consumer may go on without a permission. Its questions cost no time, and one line tells of all refusals.
func TestRefusedQuestionsAreToldOnce(t *testing.T) {
	t.Parallel()
	w, log := guarded(t, map[string]string{"payments": "$JS.API.CONSUMER.INFO"}), &logs.Lines{}
	w.run(w.user("payments", log), func(context.Context, *consumer.Message) error { return nil })
	servers.Eventually(t, time.Minute, "questions are refused", func() bool {
		return strings.Count(w.server.Log(), "Publish Violation") >= 10
	})
	w.publish("1")
	w.settled()
	if n := strings.Count(log.String(), "permissions violation"); n != 1 {
		t.Errorf("%d lines tell of the permission: %s", n, log)
	}
}
