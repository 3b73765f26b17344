package address

import (
	"errors"
	"strings"
)

// NATS is the address of the servers of one NATS system, with the options of its connections.
type NATS struct {
	// Hosts are HOST:PORT of servers that are tried in turn; the servers name further ones.
	Hosts []string
	// User and Password, Token, or CredentialsFile log in; at most one of the three is set.
	User, Password  string
	Token           string
	CredentialsFile string
	// TLS asks for TLS, Unverified for not looking at the servers' certificates. The files are CAFile, the authorities
	// that vouch for the servers, and CertFile and KeyFile, the client's own certificate.
	TLS, Unverified           bool
	CAFile, CertFile, KeyFile string
	// InboxPrefix begins the subjects of answers, for users that may not subscribe to _INBOX.>.
	InboxPrefix string
}

const natsForm = "nats://user:password@host:port,host:port or tls://..., a token with ?token=SECRET"

// The options of NATS.
const (
	optionCAFile      = "cacertfile"
	optionCertFile    = "certfile"
	optionCredentials = "credsfile"
	optionInboxPrefix = "inbox_prefix"
	optionKeyFile     = "keyfile"
	optionToken       = "token"
)

var natsOptions = []string{
	optionCAFile, optionCertFile, optionCredentials, optionInboxPrefix, optionKeyFile, optionUnverified, optionTLS,
	optionToken,
}

// ParseNATS reads the address of NATS: nats://USER:PASSWORD@HOST:PORT,HOST:PORT. tls:// and ?tls=true ask for TLS.
// ?token= and ?credsfile= log in without a user.
func ParseNATS(text string) (NATS, error) {
	u, hosts, err := parse(text, natsForm, "nats", "tls")
	if err != nil {
		return NATS{}, err
	}
	written, err := readOptions(u, natsOptions)
	if err != nil {
		return NATS{}, err
	}
	o := options{values: written}
	n := NATS{
		User: u.User.Username(), Token: o.text(optionToken), CredentialsFile: o.text(optionCredentials),
		TLS: u.Scheme == "tls" || o.boolean(optionTLS), Unverified: o.boolean(optionUnverified),
		CAFile: o.text(optionCAFile), CertFile: o.text(optionCertFile), KeyFile: o.text(optionKeyFile),
		InboxPrefix: o.text(optionInboxPrefix),
	}
	n.Password, _ = u.User.Password()
	if o.err != nil {
		return NATS{}, o.err
	}
	if strings.Trim(u.Path, "/") != "" {
		return NATS{}, errors.New("has a path behind its hosts; NATS has none: write " + natsForm)
	}
	for _, text := range hosts {
		host, err := readHost(text, "4222")
		if err != nil {
			return NATS{}, err
		}
		n.Hosts = append(n.Hosts, host)
	}
	return n, n.check()
}

// check refuses contradicting options.
func (n *NATS) check() error {
	logins := 0
	for _, login := range []string{n.User, n.Token, n.CredentialsFile} {
		if login != "" {
			logins++
		}
	}
	switch {
	case logins > 1:
		return errors.New("has more than one login; give a user with a password, token, or credsfile")
	case n.User != "" && n.Password == "":
		return errors.New("has a user without a password; write user:password@, or a token as ?token=SECRET")
	case (n.CertFile == "") != (n.KeyFile == ""):
		return errors.New("has one of certfile and keyfile; give both, or leave both out")
	case !n.TLS && (n.Unverified || n.CAFile != "" || n.CertFile != ""):
		return errors.New("has options for TLS without TLS; write tls:// or add tls=true")
	case strings.ContainsAny(n.InboxPrefix, "*> \t\r\n") || strings.HasSuffix(n.InboxPrefix, "."):
		return errors.New("has an inbox_prefix that is no subject; write a prefix such as _INBOX_orders")
	}
	return nil
}
