package natsconn

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// A server that is slow, or speaks something else, is not away.
func TestSilentServerIsAnUnfinishedHandshake(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	where := address.NATS{Hosts: []string{mute.Addr().String()}}
	config := Config{
		Name: "test", DialTimeout: 100 * time.Millisecond, PingInterval: time.Second, WriteTimeout: time.Second,
	}
	if _, err := Dial(t.Context(), where, config); !errors.Is(err, publish.ErrHandshake) {
		t.Errorf("of a silent server: %v", err)
	}
	if err := mute.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), where, config); err == nil || errors.Is(err, publish.ErrHandshake) {
		t.Errorf("of a closed port: %v", err)
	}
}
