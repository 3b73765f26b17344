package rabbitmq_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
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
}

// A node that ends the handshake at any step, or falls silent there, says nothing about the password.
func TestEndedHandshakeIsNotAccessRefused(t *testing.T) {
	t.Parallel()
	broker := servers.RabbitMQ(t).URL
	part := cause.Part{System: "rabbitmq", Key: "amqp.url"}
	// start, start-ok, tune, tune-ok, open and open-ok
	for _, step := range []string{"10.10", "10.11", "10.30", "10.31", "connection.open", "10.41"} {
		for name, act := range map[string]wire.Act{"closed": wire.Cut, "silent": wire.Silence} {
			proxy := wire.RabbitMQ(t, wire.Host(t, broker))
			proxy.On(func(e wire.Event) wire.Act {
				if e.Name == step {
					return act
				}
				return wire.Pass
			})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			_, err := rabbitmq.Examine(ctx, rabbitmq.Config{URL: proxy.URL(broker)})
			cancel()
			if is := cause.Of(part, err).Name; is != "rabbitmq-handshake" || errors.Is(err, publish.ErrAccessRefused) ||
				strings.Contains(err.Error(), "password") {
				t.Errorf("%s at %s: %v, cause %s", name, step, err, is)
			}
		}
	}
	if _, err := rabbitmq.Examine(t.Context(), rabbitmq.Config{URL: broker + "?auth_mechanism=AMQPLAIN"}); err != nil {
		t.Errorf("the other mechanism: %v", err)
	}
	for url, want := range map[string]string{
		strings.Replace(broker, "guest:guest", "guest:wrong", 1): "rabbitmq-login",
		broker + "-missing": "rabbitmq-vhost",
	} {
		_, err := rabbitmq.Examine(t.Context(), rabbitmq.Config{URL: url})
		if is := cause.Of(part, err).Name; is != want || !errors.Is(err, publish.ErrAccessRefused) {
			t.Errorf("%s: %v, cause %s", want, err, is)
		}
	}
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
