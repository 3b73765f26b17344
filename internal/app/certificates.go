package app

import (
	"fmt"

	"google.golang.org/grpc/credentials"

	"github.com/msghandler/msghandler/internal/certs"
)

// newCredentials returns the credentials of the gRPC API, or nil without a certificate.
func (a *App) newCredentials() (credentials.TransportCredentials, error) {
	files := a.settings.GRPC.Certificates
	if files.Cert == "" {
		return nil, nil //nolint:nilnil // no certificate is no error
	}
	source, err := certs.Open(certs.Files(files), a.logger)
	if err != nil {
		return nil, SettingsError{fmt.Errorf("grpc.tls_cert, grpc.tls_key and grpc.tls_client_ca: %w", err)}
	}
	a.expires("grpc.tls_cert", source)
	return source.Server(), nil
}

// expires exports the end of a certificate as a metric, if there is a certificate.
func (a *App) expires(key string, source *certs.Source) {
	if source != nil && !source.Expires().IsZero() {
		a.metrics.Certificate(key, source.Expires)
	}
}
