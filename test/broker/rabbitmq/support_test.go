package rabbitmq_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/test/broker/publishtest"
	"github.com/msghandler/msghandler/test/servers"
)

// The suite's helpers.
var (
	ready          = publishtest.Ready
	closePublisher = publishtest.Close
	message        = publishtest.Message
	messages       = publishtest.Messages
	expect         = publishtest.Expect
	count          = publishtest.Count
	publishAll     = publishtest.Publish
	outcome        = publishtest.PublishOne
)

// publisher starts a publisher that is ready, and closed when the test ends.
func publisher(t testing.TB, config rabbitmq.Config) *rabbitmq.Publisher {
	t.Helper()
	config.Logger = publishtest.Logger(t)
	p, err := rabbitmq.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closePublisher(t, p, 15*time.Second) })
	ready(t, p)
	return p
}

// topology is a test's own connection, to declare and to look.
type topology struct {
	t       testing.TB
	channel *amqp.Channel
}

func declare(t testing.TB, url string) *topology {
	t.Helper()
	connection, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	channel, err := connection.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return &topology{t: t, channel: channel}
}

func (d *topology) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// exchange declares a direct exchange.
func (d *topology) exchange(name string) {
	d.t.Helper()
	d.must(d.channel.ExchangeDeclare(name, amqp.ExchangeDirect, true, false, false, false, nil))
}

// queue declares a queue of the name, bound to the exchange with the key.
func (d *topology) queue(name, exchange, key string, args amqp.Table) {
	d.t.Helper()
	_, err := d.channel.QueueDeclare(name, true, false, false, false, args)
	d.must(err)
	d.must(d.channel.QueueBind(name, key, exchange, false, nil))
}

// take consumes n messages and returns them; more or fewer fail the test.
func (d *topology) take(queue string, n int) []amqp.Delivery {
	d.t.Helper()
	deliveries, err := d.channel.Consume(queue, "", true, false, false, false, nil)
	d.must(err)
	taken := make([]amqp.Delivery, 0, n)
	timeout := time.After(2 * time.Minute)
	for len(taken) < n {
		select {
		case delivery := <-deliveries:
			taken = append(taken, delivery)
		case <-timeout:
			d.t.Fatalf("%d messages in %s, want %d", len(taken), queue, n)
		}
	}
	return taken
}

// user is a broker's user with limited permissions on one virtual host.
type user struct {
	t     testing.TB
	vhost *servers.Vhost
	name  string
	url   string
}

// limitedUser makes a user who may write to the exchanges that match.
func limitedUser(t testing.TB, vhost *servers.Vhost, write string) *user {
	t.Helper()
	u := &user{t: t, vhost: vhost, name: "user-" + vhost.Name}
	u.url = strings.Replace(vhost.URL, "guest:guest", u.name+":its-secret", 1)
	u.call(http.MethodPut, "/api/users/"+u.name, map[string]string{"password": "its-secret", "tags": ""})
	t.Cleanup(func() { u.call(http.MethodDelete, "/api/users/"+u.name, nil) })
	u.allow(write)
	return u
}

// allow sets which exchanges the user may write to.
func (u *user) allow(write string) {
	u.t.Helper()
	u.call(http.MethodPut, "/api/permissions/"+u.vhost.Name+"/"+u.name,
		map[string]string{"configure": "^$", "write": write, "read": "^$"})
}

// allowTopics sets which routing keys the user may use with a topic exchange.
func (u *user) allowTopics(exchange, write string) {
	u.t.Helper()
	u.call(http.MethodPut, "/api/topic-permissions/"+u.vhost.Name+"/"+u.name,
		map[string]string{"exchange": exchange, "write": write, "read": "^$"})
}

func (u *user) call(method, path string, in any) {
	u.t.Helper()
	if err := u.vhost.Management().Call(method, path, in, nil); err != nil {
		u.t.Fatal(err)
	}
}
