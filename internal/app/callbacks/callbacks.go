// Package callbacks says how a coordinator of given settings calls producers, to the coordinator and to those who examine it.
package callbacks

import (
	"fmt"
	"log/slog"

	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/certs"
	"github.com/msghandler/msghandler/internal/config"
)

// Config gives the configuration of the client that calls producers, and where it takes its certificates from: nil where no
// producer is called with TLS. It fails when those cannot be read.
func Config(settings *config.Config, logger *slog.Logger) (callback.Config, *certs.Source, error) {
	c := callback.Config{
		Allow:    settings.Callbacks.Allow,
		Networks: settings.Callbacks.Networks,
		Targets:  settings.Targets(),
		Moved:    settings.MovedTargets(),
		Timeout:  settings.Confirm.Timeout,
		MaxBatch: settings.Confirm.Batch,
		Logger:   logger,
	}
	if !settings.SecuresAny() {
		return c, nil, nil
	}
	source, err := certs.Open(certs.Files(settings.Callbacks.Certificates), logger)
	if err != nil {
		return callback.Config{}, nil, fmt.Errorf("callbacks.tls_ca, callbacks.tls_cert and callbacks.tls_key: %w", err)
	}
	c.Secure, c.Credentials = settings.Secure, source.Client("")
	return c, source, nil
}
