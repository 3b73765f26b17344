// Package natsserver is a NATS server as a child process of a test: the test's own program, started again by
// servers.NATS. Only packages that test with NATS link the server.
package natsserver

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"

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
			err = s.Reload()
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
