// Package natsserver is a NATS server as a child process of a test: the test's own program, started again by
// servers.NATS. Only packages that test with NATS link the server.
package natsserver

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/test/servers"
)

// Child runs a server until it is killed, if this process was started for that, and says whether it was. TestMain calls
// it first, and returns after a server.
func Child() (was bool) {
	config := os.Getenv(servers.NATSChild)
	if config == "" {
		return false
	}
	if err := run(config); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return true
}

func run(config string) error {
	options, err := server.ProcessConfigFile(config)
	if err != nil {
		return err
	}
	options.NoSigs = true
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	s.Start()
	store := options.StoreDir
	for received := range signals {
		switch received {
		case syscall.SIGHUP:
			if err = s.Reload(); err == nil {
				fmt.Fprintln(os.Stderr, servers.NATSReloaded)
			}
		case syscall.SIGUSR1:
			err = s.ShutdownJetStream()
		case syscall.SIGUSR2:
			err = s.EnableJetStream(&server.JetStreamConfig{StoreDir: store})
		default:
			s.Shutdown()
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// JetStream is a test's own connection to servers, which comes back after each of their ends.
func JetStream(t testing.TB, url string) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Stream makes a stream, and returns the test's connection to its server.
func Stream(t testing.TB, url, name, subject string) jetstream.JetStream {
	t.Helper()
	js := JetStream(t, url)
	config := jetstream.StreamConfig{Name: name, Subjects: []string{subject}}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	return js
}
