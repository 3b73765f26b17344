// Command producer-demo is a shop that announces its orders through msghandler. Its code, written to be read
// by those who want to use the producer SDK, is in dev/demo/orders.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/msghandler/msghandler/dev/demo/orders"
)

func main() {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it; otherwise a terminal that closes stops the service cleanly
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	os.Exit(orders.Command(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
