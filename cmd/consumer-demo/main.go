// Command consumer-demo is a payment service that is told of orders through msghandler. Its code, written to be read by
// those who want to use the consumer SDK, is in internal/demo/payments.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/msghandler/msghandler/internal/demo/payments"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(payments.Command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
