package rabbitmq_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/servers"
)

func TestExamineFindsAlarmAndMissingExchange(t *testing.T) {
	node := servers.PrivateRabbitMQ(t)
	config := rabbitmq.Config{URL: "amqp://127.0.0.1:1/," + node.URL}
	health, err := rabbitmq.Examine(t.Context(), config, "amq.topic", "nowhere", "nowhere")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(health.Server, "RabbitMQ ") || health.Trouble != nil {
		t.Errorf("a healthy broker is %+v", health)
	}
	if len(health.Exchanges) != 1 || health.Exchanges["nowhere"] == nil {
		t.Errorf("the publisher says of its exchanges %v", health.Exchanges)
	}

	node.Ctl("set_vm_memory_high_watermark", "0.0000001")
	servers.Eventually(t, time.Minute, "the alarm is told", func() bool {
		health, err = rabbitmq.Examine(t.Context(), config)
		return err == nil && errors.Is(health.Trouble, publish.ErrBlocked)
	})
}

// Silence is no refusal.
func TestSilentBrokerIsNotAccessRefused(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0") // the system takes connections, and no process reads them
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = rabbitmq.Examine(ctx, rabbitmq.Config{URL: "amqp://" + mute.Addr().String() + "/"})
	if !errors.Is(err, publish.ErrHandshake) || errors.Is(err, publish.ErrAccessRefused) {
		t.Errorf("got %v", err)
	}
	slow := stallsAfterGreeting(t, servers.RabbitMQ(t).URL)
	ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = rabbitmq.Examine(ctx, rabbitmq.Config{URL: slow})
	if !errors.Is(err, publish.ErrHandshake) || errors.Is(err, publish.ErrAccessRefused) ||
		strings.Contains(err.Error(), "password") {
		t.Errorf("of a broker that is slow in the handshake: %v", err)
	}
	wrong := strings.Replace(servers.RabbitMQ(t).URL, "guest:guest", "guest:wrong", 1)
	_, err = rabbitmq.Examine(t.Context(), rabbitmq.Config{URL: wrong})
	if !errors.Is(err, publish.ErrAccessRefused) {
		t.Errorf("with a wrong password: %v", err)
	}
}

// stallsAfterGreeting is the URL of a proxy that hands over the first bytes of a broker, and nothing more.
func stallsAfterGreeting(t *testing.T, broker string) string {
	t.Helper()
	at, err := url.Parse(broker)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, err := net.Dial("tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = listener.Close(), server.Close() })
	go func() {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		greeted := make(chan struct{})
		go func() {
			defer close(greeted)
			greeting := make([]byte, 4<<10)
			if n, err := server.Read(greeting); err == nil {
				_, _ = client.Write(greeting[:n])
			}
		}()
		_, _ = io.Copy(server, client) // until the client hangs up
		<-greeted
	}()
	at.Host = listener.Addr().String()
	return at.String()
}

func TestDepthsLeavesOutMissingQueues(t *testing.T) {
	vhost := servers.RabbitMQ(t)
	d := declare(t, vhost.URL)
	for _, name := range []string{"one", "none"} {
		_, err := d.channel.QueueDeclare(name, true, false, false, false, nil)
		d.must(err)
	}
	d.must(d.channel.PublishWithContext(t.Context(), "", "one", false, false, amqp.Publishing{}))
	servers.Eventually(t, 10*time.Second, "the broker counts it", func() bool {
		depths, err := rabbitmq.Depths(t.Context(), rabbitmq.Config{URL: vhost.URL}, "missing", "one", "none")
		return err == nil && maps.Equal(depths, map[string]int{"one": 1, "none": 0})
	})
}
