// Package cause says what is behind the error of a part, why that matters and what to do: one table for the console,
// the findings of a coordinator, the doctor and the command line.
//
// A typed error decides where there is one. Text decides where the error is known as text only: the last error of a
// message, what other coordinators report, and what a library says in no other way.
package cause

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/msghandler/msghandler/internal/ground/build"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Cause is what is behind an error.
type Cause struct {
	// Name is the finding that docs/reference/findings.md explains. Several causes may share a name, with a remedy each.
	Name string `json:"name"`
	// Why is the consequence.
	Why string `json:"why"`
	// Remedy is the action to take.
	Remedy string `json:"remedy"`
}

// docs is where people read the pages of this version.
var docs = build.Read().Pages() + "docs/"

// AlertsPage is the page of all alerts.
var AlertsPage = docs + "reference/alerts.md"

// Page is the address of the explanation of a finding.
func Page(finding string) string { return docs + "reference/findings.md#" + finding }

// Part is a part of a coordinator, or a server that a coordinator needs.
type Part struct {
	// System is redis, rabbitmq, kafka, nats or sql; empty for a part of the coordinator itself.
	System string
	// Name is the NAME of brokers.NAME or outbox.NAME; empty for a part without a name.
	Name string
	// Key is the key of the configuration that says where the part is.
	Key string
}

// Redis is the part that keeps the messages.
var Redis = Part{System: "redis", Key: "redis.url"}

// Explained is an error that knows its cause.
type Explained interface {
	error
	// Cause is what is behind the error.
	Cause() Cause
}

// ErrNotOpen is the error of a part that is not open yet.
var ErrNotOpen = errors.New("not open yet")

// Of is the cause of the error of a part. An error of the store has its cause in Redis, in any part.
func Of(part Part, err error) Cause {
	var explained Explained
	switch {
	case errors.As(err, &explained):
		return explained.Cause()
	case errors.Is(err, ErrNotOpen):
		return NotServing
	case part.System == Redis.System, isStoreError(err):
		return ofServer(Redis, err, ofRedis(err))
	case part.System == "rabbitmq":
		return ofServer(part, err, ofRabbitMQ(err))
	case part.System == "sql":
		return ofServer(part, err, ofDatabase(err))
	case part.System != "":
		return ofServer(part, err, ofBroker(err))
	}
	return Degraded
}

// ofServer is the cause of the error of a server, where usual is the cause with a good certificate.
func ofServer(part Part, err error, usual Cause) Cause {
	return ofExpired(err.Error(), usual, ServerExpired).About(part)
}

// About puts the part into the remedy.
func (c Cause) About(part Part) Cause {
	return c.with("{key}", part.Key, "{name}", part.Name)
}

// with replaces placeholders of consequence and remedy.
func (c Cause) with(pairs ...string) Cause {
	replace := strings.NewReplacer(pairs...)
	c.Why, c.Remedy = replace.Replace(c.Why), replace.Replace(c.Remedy)
	return c
}

// isStoreError says whether the store failed, and not what it was asked for.
func isStoreError(err error) bool {
	return errors.Is(err, halfmsg.ErrUnavailable) || errors.Is(err, halfmsg.ErrUncertain) ||
		errors.Is(err, halfmsg.ErrFull)
}

// isDial says whether no connection came about.
func isDial(err error) bool {
	var dial *net.OpError
	var name *net.DNSError
	return errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &name)
}

// isTLS says whether the handshake of TLS failed.
func isTLS(err error) bool {
	var noTLS tls.RecordHeaderError
	var unverified *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var alert *net.OpError
	return errors.As(err, &noTLS) || errors.As(err, &unverified) || errors.As(err, &authority) ||
		errors.As(err, &host) || errors.As(err, &invalid) || errors.As(err, &alert) && alert.Op == "remote error" ||
		slices.ContainsFunc(wordsOfTLS, func(words string) bool { return strings.Contains(err.Error(), words) })
}

// wordsOfTLS are the words of libraries whose server does not serve TLS, or serves nothing else.
var wordsOfTLS = []string{
	"secure connection not available", "secure connection required", // NATS
	"server refused TLS connection", "server does not support TLS", // PostgreSQL, MySQL
}

// isTimeout says whether an answer did not come in time.
func isTimeout(err error) bool {
	var late interface {
		error
		Timeout() bool
	}
	return errors.As(err, &late) && late.Timeout()
}
