package rabbitmq_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/rabbitmq"
	"github.com/msghandler/msghandler/test/servers"
)

func TestExamineTellsAnAlarmAndAMissingExchange(t *testing.T) {
	node := servers.PrivateRabbitMQ(t)
	config := rabbitmq.Config{URLs: []string{"amqp://127.0.0.1:1/", node.URL}}
	health, err := rabbitmq.Examine(t.Context(), config, "amq.topic", "nowhere", "nowhere")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(health.Server, "RabbitMQ ") || health.Trouble != nil {
		t.Errorf("a healthy broker is %+v", health)
	}
	if len(health.Exchanges) != 1 || health.Exchanges["nowhere"] == nil {
		t.Errorf("of its exchanges it says %v", health.Exchanges)
	}

	node.Ctl("set_vm_memory_high_watermark", "0.0000001")
	servers.Eventually(t, time.Minute, "the alarm is told", func() bool {
		health, err = rabbitmq.Examine(t.Context(), config)
		return err == nil && errors.Is(health.Trouble, rabbitmq.ErrBlocked)
	})
}

func TestDepthsCountsQueuesThatAreThere(t *testing.T) {
	vhost := servers.RabbitMQ(t)
	d := declare(t, vhost.URL)
	for _, name := range []string{"one", "none"} {
		_, err := d.channel.QueueDeclare(name, true, false, false, false, nil)
		d.must(err)
	}
	d.must(d.channel.PublishWithContext(t.Context(), "", "one", false, false, amqp.Publishing{}))
	servers.Eventually(t, 10*time.Second, "the broker counts it", func() bool {
		depths, err := rabbitmq.Depths(t.Context(), rabbitmq.Config{URLs: []string{vhost.URL}}, "missing", "one", "none")
		return err == nil && maps.Equal(depths, map[string]int{"one": 1, "none": 0})
	})
}
