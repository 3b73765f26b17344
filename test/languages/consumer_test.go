package languages

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// pythonPayments is both the name and the queue of examples/python/consumer.py.
const pythonPayments = "python-payments"

// payments runs examples/python/consumer.py, with a proxy on the way to its database.
type payments struct {
	*testing.T
	way     *wire.Proxy
	db      *sql.DB
	channel *amqp.Channel
	program *program
	run     []string
	env     []string
}

func TestPythonConsumerTakesEffectOnce(t *testing.T) {
	t.Parallel()
	p := startPayments(t)
	p.publish("twice", `{"id": "twice", "amount": 2}`)
	p.publish("twice", `{"id": "twice", "amount": 2}`)
	p.paid("twice")

	// Messages that no further try can help are dead letters.
	p.publish("garbage", `{"id": "garb`)
	p.publish("refused", `{"id": "refused", "amount": -1}`)
	p.publish("", `{"id": "nameless", "amount": 1}`)
	p.dead(3)

	p.way.Cut()
	p.publish("outage", `{"id": "outage", "amount": 3}`)
	p.program.says("again in a second")
	p.way.Restore()
	p.paid("outage")

	// Killed when its COMMIT is done and the message is not acknowledged.
	p.atCommit(func() wire.Act {
		_ = p.program.cmd.Process.Kill()
		return wire.Cut
	})
	p.publish("killed", `{"id": "killed", "amount": 4}`)
	<-p.program.ended
	p.start()
	p.program.says("killed paid before, copy ignored")

	p.atCommit(func() wire.Act { return wire.Cut })
	p.publish("unanswered", `{"id": "unanswered", "amount": 5}`)
	p.program.says("unanswered paid before, copy ignored")
	for _, id := range []string{"twice", "outage", "killed", "unanswered"} {
		p.paid(id)
	}
	p.dead(3)
}

func startPayments(t *testing.T) *payments {
	t.Helper()
	database, vhost := servers.PostgreSQL(t), servers.RabbitMQ(t)
	p := &payments{T: t, way: wire.SQL(t, hostOf.FindString(database.DSN))}
	p.run = []string{servers.Python(t, "psycopg2", "pika"), "../../examples/python/consumer.py"}
	p.env = []string{"DATABASE_URL=" + postgreSQL.url(database.DSN, p.way.Addr), "AMQP_URL=" + vhost.URL}
	var err error
	if p.db, err = sql.Open(database.Driver, database.DSN); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.db.Close() })
	inbox, err := sqlinbox.New(sqlinbox.Config{DB: p.db, Dialect: sqlinbox.PostgreSQL, Consumer: pythonPayments})
	if err == nil {
		err = inbox.Migrate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	conn, err := amqp.Dial(vhost.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if p.channel, err = conn.Channel(); err != nil {
		t.Fatal(err)
	}
	p.start()
	return p
}

func (p *payments) start() {
	p.Helper()
	p.program = start(p.T, pythonPayments, p.env, p.run)
	p.program.says("ready\n")
}

// publish publishes as a coordinator does. The broker has the message when publish returns.
func (p *payments) publish(id, body string) {
	p.Helper()
	err := p.channel.PublishWithContext(p.Context(), "", pythonPayments, true, false, amqp.Publishing{
		MessageId: id, AppId: "orders", ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: []byte(body),
	})
	if err != nil {
		p.Fatal(err)
	}
}

// atCommit has something happen when the next COMMIT is done and its answer is on the way.
func (p *payments) atCommit(do func() wire.Act) {
	p.way.On(func(e wire.Event) wire.Act {
		if e.Phase != wire.Reply {
			return wire.Pass
		}
		p.way.On(nil)
		return do()
	})
}

// paid waits for the effect of a message, and demands that the effect happened once and is in the inbox of the SDK.
func (p *payments) paid(id string) {
	p.Helper()
	if n := p.eventually(`SELECT COUNT(*) FROM payments WHERE order_id = '`+id+`'`, 1); n > 1 {
		p.Errorf("the effect of %s happened %d times", id, n)
	}
	p.eventually(`SELECT COUNT(*) FROM msghandler_inbox WHERE message = 'orders/`+id+`' AND routing_key = '`+
		pythonPayments+`'`, 1)
}

// eventually waits until a query counts at least n rows.
func (p *payments) eventually(query string, n int) (found int) {
	p.Helper()
	servers.Eventually(p, time.Minute, fmt.Sprintf("%d rows of %s", n, query), func() bool {
		err := p.db.QueryRowContext(p.Context(), query).Scan(&found)
		if err != nil && !strings.Contains(err.Error(), "does not exist") {
			p.Fatal(err)
		}
		return found >= n
	})
	return found
}

// dead waits for as many dead letters.
func (p *payments) dead(n int) {
	p.Helper()
	servers.Eventually(p, time.Minute, fmt.Sprintf("%d dead letters", n), func() bool {
		queue, err := p.channel.QueueDeclarePassive(pythonPayments+".dead", true, false, false, false, nil)
		if err != nil {
			p.Fatal(err)
		}
		if queue.Messages > n {
			p.Fatalf("%d dead letters, want %d", queue.Messages, n)
		}
		return queue.Messages == n
	})
}
