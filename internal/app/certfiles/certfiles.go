// Package certfiles finds the files with certificates that a configuration names, for the coordinator and for doctor.
package certfiles

import (
	"crypto/x509"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/expiry"
	"github.com/msghandler/msghandler/proto/certs"
)

// File is a file with certificates.
type File struct {
	// Key is the key of the configuration that names the file.
	Key, Path string
	// Authorities says that the file has authorities, and not a certificate with its intermediate authorities.
	Authorities bool
}

// Own are the files of the coordinator's listeners and of its calls to producers.
func Own(c *config.Config) []File {
	return named([]File{
		{Key: "grpc.tls_cert", Path: c.GRPC.Certificates.Cert},
		{Key: "grpc.tls_client_ca", Path: c.GRPC.Certificates.CA, Authorities: true},
		{Key: "http.tls_cert", Path: c.HTTP.Certificates.Cert},
		{Key: "callbacks.tls_cert", Path: c.Callbacks.Certificates.Cert},
		{Key: "callbacks.tls_ca", Path: c.Callbacks.Certificates.CA, Authorities: true},
	})
}

// Others are the files for the issuer, the brokers and the databases.
func Others(c *config.Config) []File {
	all := []File{{Key: "access.oidc_ca", Path: c.Access.OIDC.CA, Authorities: true}}
	for _, at := range c.AMQP.URLs {
		all = append(all, inURL("amqp.url", at)...)
	}
	for _, name := range c.BrokerNames() {
		for _, at := range strings.Split(c.Brokers[name].URL, ",") {
			all = append(all, inURL("brokers."+name+".url", at)...)
		}
	}
	for _, name := range c.OutboxNames() {
		all = append(all, inURL("outbox."+name+".dsn", c.Outbox[name].DSN)...)
	}
	return named(all)
}

// named are the files that have a name.
func named(all []File) (named []File) {
	for _, f := range all {
		if f.Path != "" {
			named = append(named, f)
		}
	}
	return named
}

// inURL are the files that the options of a URL name.
func inURL(key, at string) (all []File) {
	_, query, _ := strings.Cut(at, "?")
	options, err := url.ParseQuery(query)
	if err != nil {
		return nil // the part itself says so
	}
	for _, option := range []string{"certfile", "cert", "sslcert"} { // of RabbitMQ and NATS, Kafka, PostgreSQL
		all = append(all, File{Key: key, Path: options.Get(option)})
	}
	for _, option := range []string{"cacertfile", "ca", "sslrootcert"} {
		all = append(all, File{Key: key, Path: options.Get(option), Authorities: true})
	}
	return all
}

// Certificates are those that the file has now; none where it cannot be read.
func (f File) Certificates(now time.Time) []expiry.Certificate {
	content, err := os.ReadFile(f.Path)
	if err != nil {
		return nil // the part that needs the file says so
	}
	return f.Of(certs.Parse(content), now)
}

// Of is what certificates of the file mean.
func (f File) Of(all []*x509.Certificate, now time.Time) []expiry.Certificate {
	if f.Authorities {
		return expiry.OfAuthorities(f.Key, f.Path, all, now)
	}
	return expiry.OfChain(f.Key, f.Path, all, nil)
}
