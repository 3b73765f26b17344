// Command orders takes orders by HTTP and announces each to other services, both or neither. Start with place in
// service.go; http.go has the answers to the clients.
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/msghandler/msghandler/examples/database"
)

// Each limit leaves time for the one before: the SDK gives up, then the request, then the connection, then the process.
const (
	sendTimeout    = 5 * time.Second  // for a coordinator that takes no message
	beginTimeout   = 5 * time.Second  // for a database that begins no transaction
	requestTimeout = 15 * time.Second // for a whole order
	writeTimeout   = 20 * time.Second // for a connection
	stopTimeout    = 25 * time.Second // for the end of the process; Kubernetes kills after 30 s
)

// config is the environment of the service.
type config struct {
	listen      string // ORDERS_LISTEN
	database    string // ORDERS_DATABASE, a URL
	coordinator string // ORDERS_COORDINATOR, one address or several with commas
	tokenFile   string // ORDERS_TOKEN_FILE: the token that the coordinator knows the service by
	caFile      string // ORDERS_CA_FILE: the authority of the coordinator's certificate; empty: no TLS
}

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, config{
		listen:      cmp.Or(os.Getenv("ORDERS_LISTEN"), "127.0.0.1:8080"),
		database:    cmp.Or(os.Getenv("ORDERS_DATABASE"), "sqlite:orders.db"),
		coordinator: cmp.Or(os.Getenv("ORDERS_COORDINATOR"), "127.0.0.1:9090"),
		tokenFile:   os.Getenv("ORDERS_TOKEN_FILE"),
		caFile:      os.Getenv("ORDERS_CA_FILE"),
	})
	if err != nil {
		slog.Error("orders failed; the process ends", "cause", err)
		os.Exit(1)
	}
}

// run takes orders until the context ends. Then it takes no more, finishes those under way, and ends.
func run(ctx context.Context, c config) (err error) {
	db, err := database.Open(ctx, c.database)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer db.Close()
	s, err := newService(ctx, c, db)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.listen)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: s.handler(ctx), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: writeTimeout, IdleTimeout: 2 * time.Minute,
	}
	var running sync.WaitGroup
	defer running.Wait()
	served := make(chan error, 1)
	running.Go(func() { served <- server.Serve(listener) })
	slog.Info("orders are taken", "address", listener.Addr().String())
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	// First the requests, then the submits that they left in the background. What is cut off is not lost: the
	// coordinator asks.
	return errors.Join(err, server.Shutdown(stopping), s.producer.Close(stopping))
}

// transport is TLS with the authority of the coordinator's certificate, or nil.
func (c config) transport() (*tls.Config, error) {
	if c.caFile == "" {
		return nil, nil //nolint:nilnil // no file, no TLS
	}
	pem, err := os.ReadFile(c.caFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", c.caFile)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, nil
}
