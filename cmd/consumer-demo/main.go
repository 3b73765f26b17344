// Command consumer-demo runs the consumers of a shop, which is told of orders through msghandler. Its code, written to
// be read by those who want to use the consumer SDK, is in dev/demo/consumers.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/msghandler/msghandler/dev/demo/consumers"
)

func main() {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it; otherwise a terminal that closes stops the service cleanly
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	os.Exit(consumers.Command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
