package producer_test

import (
	"strings"
	"testing"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
)

// New refuses a malformed address and says how to fix it; gRPC would try the address in vain until each call's time
// is over. The error never quotes the address, which may hold a password.
func TestMalformedCoordinatorAddressIsRefused(t *testing.T) {
	t.Parallel()
	for coordinator, want := range map[string]string{
		"127.0.0.1:99999":              "producer.Config: Coordinator is not a coordinator's address; write host:port",
		"127.0.0.1":                    "producer.Config: Coordinator is not a coordinator's address; write host:port",
		"127.0.0.1:1,127.0.0.1:x":      "producer.Config: Coordinator is not a coordinator's address; write host:port",
		"http://127.0.0.1:9090":        "producer.Config: Coordinator is not a coordinator's address; write host:port",
		"amqp://guest:hunter2@h:5672/": "producer.Config: Coordinator has an @, and a coordinator takes no login",
		"redis://:hunter2@a,b":         "producer.Config: Coordinator names a scheme in a list",
		"orders:hunter2@h:9090":        "producer.Config: Coordinator has an @, and a coordinator takes no login",
	} {
		p, err := producer.New(producer.Config{Name: "orders", Coordinator: coordinator, Markers: memory.New()})
		if err == nil {
			t.Errorf("%s was taken", coordinator)
			_ = p.Close(t.Context())
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", coordinator, err)
		}
	}
}
