package rabbitmq_test

import (
	"errors"
	"strings"
	"testing"
	"time"

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
