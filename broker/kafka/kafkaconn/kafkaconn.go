// Package kafkaconn connects to Kafka, and writes records of which the fate is known. The coordinator's publisher and
// the SDKs share it.
//
// A Producer writes with acks=all and as an idempotent writer: a record is stored when all in-sync replicas have it,
// and a batch that the client repeats is stored once. The client's own error says why a record failed, and not
// whether a broker may have it. So a Producer counts the produce requests that were begun and those that ended without
// an answer, and judges each error by both.
package kafkaconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/network"
)

// dialTimeout bounds reaching a broker and the handshake of TLS.
const dialTimeout = 5 * time.Second

// Config says how to connect.
type Config struct {
	// Address is the cluster.
	Address address.Kafka
	// Name is the client id, unless the address has one.
	Name string
	// Dial connects to a broker. Nil: over the machine's network.
	Dial network.Dialer
	// TLS is used where the address asks for TLS and names no files; nil is Go's default.
	TLS *tls.Config
	// Handshake gets the result of each handshake of TLS with a server, or the error with which no connection came about.
	// Handshake must not block. May be nil.
	Handshake func(server string, state tls.ConnectionState, err error)
	// AnswerTimeout is how long a broker may take for the answer to a request that is not answered at once.
	AnswerTimeout time.Duration
}

// Options are the options of a client for the address. An error names a file that cannot be used. The files are read
// again for each connection: certificates are replaced while a client lives.
func (c Config) Options() ([]kgo.Opt, error) {
	return c.options(func(conn net.Conn) net.Conn { return conn })
}

// options also wraps each connection; what is written to the wrapper is not encrypted yet.
func (c Config) options(wrap func(net.Conn) net.Conn) ([]kgo.Opt, error) {
	if _, err := c.secure(); err != nil {
		return nil, err
	}
	name := c.Name
	if c.Address.ClientID != "" {
		name = c.Address.ClientID
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Address.Hosts...),
		kgo.ClientID(name),
		kgo.Dialer(func(ctx context.Context, network, host string) (net.Conn, error) {
			secure, err := c.secure()
			if err != nil {
				return nil, err
			}
			conn, err := c.dial(ctx, network, host, secure)
			if err != nil {
				return nil, err
			}
			return wrap(conn), nil
		}),
		kgo.RequestTimeoutOverhead(max(c.AnswerTimeout, time.Second)),
		kgo.MetadataMinAge(metadataMinAge),
		// A client that reports its metrics to the brokers sends requests that nobody here asked for.
		kgo.DisableClientMetrics(),
	}
	if login := c.login(); login != nil {
		options = append(options, kgo.SASL(login))
	}
	return options, nil
}

// metadataMinAge is how soon the client looks for a moved leader or a new topic again.
const metadataMinAge = 100 * time.Millisecond

// dial connects to HOST:PORT, with the handshake of TLS unless secure is nil. The client takes a dialer or a TLS
// configuration, and not both.
func (c Config) dial(ctx context.Context, network, host string, secure *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := c.Dial.Dial(ctx, network, host)
	if err != nil || secure == nil {
		return conn, err
	}
	config := secure.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(host) // the client gives a host and a port
	}
	secured := tls.Client(conn, config)
	err = secured.HandshakeContext(ctx)
	if c.Handshake != nil {
		c.Handshake(host, secured.ConnectionState(), err)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("handshake of TLS: %w", err)
	}
	return secured, nil
}

// secure is the configuration of TLS; nil without TLS.
func (c Config) secure() (*tls.Config, error) {
	a := c.Address
	if !a.TLS {
		return nil, nil
	}
	if a.CA+a.Cert == "" && !a.Unverified && c.TLS != nil {
		return c.TLS, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: a.Unverified} //nolint:gosec // asked for
	if a.CA != "" {
		pem, err := os.ReadFile(a.CA)
		if err != nil {
			return nil, fmt.Errorf("read the authorities of Kafka: %w; correct the option ca", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("the file of the option ca has no certificate; name a file in PEM form")
		}
	}
	if a.Cert != "" {
		own, err := tls.LoadX509KeyPair(a.Cert, a.Key)
		if err != nil {
			return nil, fmt.Errorf("read the certificate for Kafka: %w; correct the options cert and key", err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// login is how the user logs in; nil without a user.
func (c Config) login() sasl.Mechanism {
	user, password := c.Address.User, c.Address.Password
	switch c.Address.Mechanism {
	case address.SASLPlain:
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case address.SASLScram256:
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case address.SASLScram512:
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	}
	return nil
}
