package app

import (
	"crypto/tls"
	"fmt"

	"google.golang.org/grpc/credentials"

	"github.com/msghandler/msghandler/proto/certs"
)

// newCredentials returns the credentials of the gRPC API, or nil without a certificate.
func (a *App) newCredentials() (credentials.TransportCredentials, error) {
	files := a.settings.GRPC.Certificates
	if files.Cert == "" {
		return nil, nil //nolint:nilnil // no certificate is no error
	}
	clients := certs.Clients{CRL: a.settings.GRPC.CRL, Optional: a.settings.Access.Tokens()}
	source, err := certs.OpenServer(certs.Files(files), clients, a.logger)
	if err != nil {
		return nil, SettingsError{fmt.Errorf("grpc.tls_cert, grpc.tls_key, grpc.tls_client_ca and grpc.tls_crl: %w", err)}
	}
	a.expires("grpc.tls_cert", source)
	a.doors.withdrawn = source.Withdrawn
	return source.Server(), nil
}

// newConsoleTLS returns the TLS configuration of the console, or nil without a certificate.
func (a *App) newConsoleTLS() (*tls.Config, error) {
	files := a.settings.HTTP.Certificates
	if files.Cert == "" {
		return nil, nil //nolint:nilnil // no certificate is no error
	}
	source, err := certs.Open(certs.Files(files), a.logger)
	if err != nil {
		return nil, SettingsError{fmt.Errorf("http.tls_cert and http.tls_key: %w", err)}
	}
	a.expires("http.tls_cert", source)
	return source.HTTPConfig(), nil
}

// expires exports the end of a certificate as a metric, if there is a certificate.
func (a *App) expires(key string, source *certs.Source) {
	if source != nil && !source.Expires().IsZero() {
		a.metrics.Certificate(key, source.Expires)
	}
}
