package app

import (
	"fmt"

	"google.golang.org/grpc/credentials"

	"github.com/msghandler/msghandler/internal/certs"
	"github.com/msghandler/msghandler/internal/server"
)

// newCredentials are those of the door for producers and operators, nil where it has no certificate.
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

// expires has the metrics tell when a certificate ends, if there is one.
func (a *App) expires(key string, source *certs.Source) {
	if source != nil && !source.Expires().IsZero() {
		a.metrics.Certificate(key, source.Expires)
	}
}

// permissions are nil where nobody is named, so that no call pays for them.
func (a *App) permissions() server.Permissions {
	permissions := server.Permissions{Admins: a.settings.GRPC.Admins}
	if a.settings.NamesCallers() {
		permissions.Callers = a.settings.Callers
	}
	return permissions
}
