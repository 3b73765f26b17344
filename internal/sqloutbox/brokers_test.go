package sqloutbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/sendloop"
	"github.com/msghandler/msghandler/internal/sqloutbox"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// absent is the publisher of a broker that cannot be reached, or that has trouble with each message.
type absent struct{ ready error }

var errAbsent = errors.New("no connection to the broker")

func (a absent) Ready() error { return a.ready }

func (absent) Publish(
	_ context.Context, batch []halfmsg.Publishing, answered func(places []int, results []halfmsg.PublishResult),
) {
	places, results := make([]int, len(batch)), make([]halfmsg.PublishResult, len(batch))
	for i := range batch {
		places[i], results[i] = i, halfmsg.PublishResult{Outcome: halfmsg.Unsent, Cause: errAbsent}
	}
	answered(places, results)
}

// insertMany commits rows with ids from a prefix, for a broker and an exchange.
func (s *site) insertMany(prefix, broker string, rows int) {
	s.t.Helper()
	values := make([]string, rows)
	for i := range values {
		values[i] = fmt.Sprintf("('%s%05d', '%s', 'paid')", prefix, i, broker)
	}
	s.exec("INSERT INTO msghandler_outbox (id, broker, routing_key) VALUES " + strings.Join(values, ", "))
}

// usualPoll relays as the defaults have it, where pauses between passes are seconds.
func usualPoll(c *sqloutbox.Config) { c.Settings.Poll = config.DefaultOutbox().Poll }

// A broker that is away, or one whose queues do not confirm, has rows that are due before those of a healthy one.
func TestTroubledBrokerStarvesNoOther(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *site) {
		s.brokers["away"] = sendloop.Broker{Publisher: absent{errAbsent}}
		s.brokers["stalled"] = sendloop.Broker{Publisher: absent{}}
		s.insertMany("a", "away", 3000)
		s.insertMany("b", "stalled", 3000)
		s.insertMany("c", "", 300)
		r := s.relay(usualPoll)
		servers.Eventually(s.t, 15*time.Second, "the rows of the healthy broker are sent", func() bool {
			return s.count("state = 3 AND broker = ''") == 300
		})
		servers.Eventually(s.t, 30*time.Second, "the rows of the absent broker count as held", func() bool {
			return r.metric(s.t, "msghandler_outbox_held_messages", "orders") == 3000
		})
		if n := s.count("broker <> '' AND (attempts > 0 OR claims > 1)"); n > 0 {
			s.t.Errorf("%d rows of the other brokers have used up attempts", n)
		}
	})
}

// Another coordinator knows the broker, or this one after a restart.
func TestUnknownBrokersRowUsesNoAttempt(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *site) {
		s.insert("id, broker, routing_key", "'1', 'later', 'paid'")
		s.insert("id, routing_key", "'2', 'paid'")
		settings := s.settings()
		r := s.relay()
		for range 2 {
			s.take("paid")
			s.insert("routing_key", "'paid'") // so that passes come and go
		}
		if s.count("id = '1' AND state = 1 AND attempts = 0 AND claims = 0") != 1 {
			s.t.Error("the row was claimed")
		}
		health, err := sqloutbox.Examine(s.t.Context(), "shop", settings, sqloutbox.Examination{
			Producers: []string{"orders"}, Brokers: []string{"events"},
		})
		if err != nil || health.Unknown != "later" {
			s.t.Errorf("the examination finds the broker %q, %v", health.Unknown, err)
		}
		must.Succeed(s.t, r.Close(context.Background()))
		s.brokers["later"] = s.brokers[""]
		s.relay()
		servers.Eventually(s.t, 20*time.Second, "the row is sent", func() bool {
			return s.count("id = '1' AND state = 3") == 1
		})
	})
}
