package config

import (
	"net"
	"time"
)

// Margins between a lease and the calls that must fit in the lease. If a lease could end while its owner still waits
// for an answer, every slow message would get two owners.
const (
	// ConfirmMargin leaves room for storing the verdicts after the Confirm and the DeleteBusiness call.
	ConfirmMargin = time.Second
	// SendMargin leaves room for waiting in the queue, and for storing the outcomes.
	SendMargin = 5 * time.Second
)

// limits are the pairs of numbers that must agree. A pair that disagrees would be decided by chance: by whichever limit
// is met first.
func (l *loading) limits() []limit {
	c := &l.config
	answer, copied := c.Send.ConfirmTimeout, c.Send.ConfirmTimeout
	if c.copiesDead() {
		answer += copied // after the last refusal, the copy has to be answered within the same lease
	}
	return []limit{
		{
			c.Confirm.Lease <= 2*c.Confirm.Timeout+ConfirmMargin, "confirm.lease",
			"must exceed twice %s plus " + ConfirmMargin.String() + ": set more than " +
				shortDuration(2*c.Confirm.Timeout+ConfirmMargin) + ", or a shorter timeout", "confirm.timeout",
		},
		{
			c.Confirm.GiveUpAfter > 0 && c.Confirm.GiveUpAfter <= c.Confirm.After, "confirm.give_up_after",
			"must exceed %s: the first question would be the final one; set a longer time, or 0 for no limit",
			"confirm.after",
		},
		{
			c.Send.Lease < answer+SendMargin, "send.lease",
			"must exceed %s by " + shortDuration(answer-copied+SendMargin) + ": set at least " +
				shortDuration(answer+SendMargin) + ", or a shorter timeout", "send.confirm_timeout",
		},
	}
}

// limit is a pair of keys whose values may disagree, and the sentence for that: it names the other key.
type limit struct {
	disagrees   bool
	key, remedy string
	other       string
}

// copiesDead reports that DEAD messages of some broker are copied.
func (c *Config) copiesDead() bool {
	for _, broker := range c.Brokers {
		if broker.DeadLetterExchange != "" {
			return true
		}
	}
	return c.Send.DeadLetterExchange != ""
}

// checkRelations checks keys that depend on each other.
func (l *loading) checkRelations() {
	c := &l.config
	for _, pair := range l.limits() {
		if pair.disagrees {
			l.relation(pair.key, pair.remedy, l.says(pair.other))
		}
	}
	if sameAddr(c.GRPC.Addr, c.HTTP.Addr) {
		l.relation("http.addr", "is the address of %s: give each its own port", l.says("grpc.addr"))
	}
	l.checkLoopback()
	l.checkBrokers()
	l.checkPolicy()
	l.checkOutbox()
	l.checkDeadLetters()
	l.checkCertificates()
	l.checkOIDC()
	l.checkAccess()
	l.checkConsole()
}

// checkCertificates rejects certificate files whose counterpart is missing.
func (l *loading) checkCertificates() {
	c := &l.config
	l.pair("grpc", c.GRPC.Certificates)
	l.pair("callbacks", c.Callbacks.Certificates)
	l.pair("http", c.HTTP.Certificates)
	if c.GRPC.Certificates.CA != "" && c.GRPC.Certificates.Cert == "" {
		l.relation("grpc.tls_client_ca", "needs a certificate of our own: set grpc.tls_cert and grpc.tls_key")
	}
	if c.GRPC.CRL != "" && c.GRPC.Certificates.CA == "" {
		l.relation("grpc.tls_crl", "revokes client certificates, and clients are asked for none: set grpc.tls_client_ca")
	}
}

// pair refuses a certificate without its key, and a key without its certificate.
func (l *loading) pair(section string, files Certificates) {
	switch {
	case files.Cert != "" && files.Key == "":
		l.relation(section+".tls_cert", "needs its private key: set %s.tls_key", section)
	case files.Cert == "" && files.Key != "":
		l.relation(section+".tls_key", "needs its certificate: set %s.tls_cert", section)
	}
}

// checkConsole rejects keys of logins to the console that need others.
func (l *loading) checkConsole() {
	h := &l.config.HTTP
	if l.config.Access.Tokens() && l.config.ExposesConsole() && h.Certificates.Cert == "" && !isHTTPS(h.PublicURL) {
		l.relation("http.addr", "needs TLS, because tokens and sessions would cross the network in the clear, and who reads "+
			"one can use it: set http.tls_cert and http.tls_key, http.public_url where a proxy encrypts (https://), or a "+
			"loopback address")
	}
	for _, c := range []struct {
		wrong       bool
		key, remedy string
	}{
		{
			h.OIDCClientID != "" && l.config.Access.OIDC.Issuer == "", "http.oidc_client_id",
			"is a client of the issuer, and there is none: set access.oidc_issuer",
		},
		{
			h.OIDCClientSecretFile != "" && h.OIDCClientID == "", "http.oidc_client_secret_file",
			"is the secret of a client without a name: set http.oidc_client_id",
		},
		{
			h.UserHeader != "" && len(h.TrustedProxies) == 0, "http.user_header",
			"is believed from trusted proxies only: set http.trusted_proxies",
		},
		{
			h.UserHeader == "" && len(h.TrustedProxies) > 0, "http.trusted_proxies",
			"are trusted to name users, and no header does: set http.user_header",
		},
	} {
		if c.wrong {
			l.relation(c.key, "%s", c.remedy)
		}
	}
}

// checkBrokers refuses a broker without a URL.
func (l *loading) checkBrokers() {
	for _, name := range l.config.BrokerNames() {
		if l.config.Brokers[name].URL == "" {
			key := "brokers." + name
			l.relation(key+".dead_letter_exchange",
				"is of a broker without a URL: set %s.url or %s.url_file, or remove this key", key, key)
		}
	}
}

// sameAddr says whether two listeners would get in each other's way. Port 0 is another port each time.
func sameAddr(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	if portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || everyHost(hostA) || everyHost(hostB)
}

func everyHost(host string) bool { return host == "" || host == "0.0.0.0" || host == "::" }
