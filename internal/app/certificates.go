package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/msghandler/msghandler/internal/app/certfiles"
	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/expiry"
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
	a.addCertificates(source, "grpc.tls_cert", "grpc.tls_client_ca")
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
	a.addCertificates(source, "http.tls_cert", "")
	return source.HTTPConfig(), nil
}

// addCertificates adds the certificate of a source and its authorities, by their keys, to the certificates in use.
func (a *App) addCertificates(source *certs.Source, cert, authorities string) {
	for _, file := range certfiles.Own(&a.settings) {
		switch file.Key {
		case cert:
			a.doors.certificates.Add(func(now time.Time) []expiry.Certificate { return file.Of(source.Chain(), now) })
		case authorities:
			a.doors.certificates.Add(func(now time.Time) []expiry.Certificate { return file.Of(source.Authorities(), now) })
		}
	}
}

// certificatesSchedule is when the ends of the certificates are looked at.
const certificatesSchedule = "@every 10s"

// watchCertificates reports certificates that end soon or have ended, at once and then with each further mark.
func (a *App) watchCertificates() error {
	for _, file := range certfiles.Others(&a.settings) {
		a.doors.certificates.Add(file.Certificates)
	}
	a.metrics.Certificates(func() map[string]expiry.Certificate { return a.doors.certificates.Soonest(time.Now()) })
	a.doors.certificates.Log(a.logger, time.Now())
	return errors.Join(
		a.repeat("certificates", certificatesSchedule, func(context.Context) error {
			a.doors.certificates.Log(a.logger, time.Now())
			return nil
		}),
		a.repeat("certificates-look", certificatesSchedule, func(ctx context.Context) error {
			a.doors.certificates.Look(ctx, time.Now())
			return nil
		}),
	)
}

// certificates reports certificates that have ended, and those that end soon.
func (f *findings) certificates(all []expiry.Certificate, now time.Time) {
	over, soon := expiry.Due(all, now)
	if over != "" {
		of := cause.CertificateExpired
		f.add(trouble, of.Name, over, of.Why, of.Remedy)
	}
	if soon != "" {
		of := cause.CertificateEnds
		f.add(warning, of.Name, soon, of.Why, of.Remedy)
	}
}
