// Package callbacks builds the client configuration with which a coordinator calls producers, for the coordinator and
// for doctor.
package callbacks

import (
	"crypto/tls"
	"fmt"
	"log/slog"

	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/proto/certs"
)

// addTokens opens each token file once.
func addTokens(c *callback.Config, settings *config.Config, logger *slog.Logger) error {
	keys := map[string]string{} // by the file
	if settings.Callbacks.TokenFile != "" {
		keys[settings.Callbacks.TokenFile] = "callbacks.token_file"
	}
	for name := range settings.Producers {
		if file := settings.TokenFile(name); file != "" && keys[file] == "" {
			keys[file] = "producers." + name + ".token_file"
		}
	}
	if len(keys) == 0 {
		return nil
	}
	files := map[string]*certs.TokenFile{}
	for file, key := range keys {
		opened, err := certs.OpenTokens(file, logger)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		files[file] = opened
	}
	c.Token = func(producer string) string {
		if file := files[settings.TokenFile(producer)]; file != nil {
			return file.First()
		}
		return ""
	}
	return nil
}

// Config returns the configuration of the client that calls producers, and the source of its certificates, which is nil
// if no producer is called with TLS. Config fails when certificates or tokens cannot be read.
func Config(settings *config.Config, logger *slog.Logger) (callback.Config, *certs.Source, error) {
	c := callback.Config{
		Allow:    settings.Callbacks.Allow,
		Networks: settings.Callbacks.Networks,
		Own:      settings.Listens,
		Targets:  settings.Targets(),
		Moved:    settings.MovedTargets(),
		Timeout:  settings.Confirm.Timeout,
		MaxBatch: settings.Confirm.Batch,
		Logger:   logger,
	}
	if err := addTokens(&c, settings, logger); err != nil {
		return callback.Config{}, nil, err
	}
	if !settings.SecuresAny() {
		return c, nil, nil
	}
	source, err := certs.Open(certs.Files(settings.Callbacks.Certificates), logger)
	if err != nil {
		return callback.Config{}, nil, fmt.Errorf("callbacks.tls_ca, callbacks.tls_cert and callbacks.tls_key: %w", err)
	}
	c.Secure, c.Credentials = settings.Secure, source.Client("")
	c.ClientTLS = func() *tls.Config { return source.ClientConfig("") }
	return c, source, nil
}
