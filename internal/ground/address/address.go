// Package address reads the addresses of Redis, RabbitMQ and coordinators: who listens where, as whom to come, and what to ask
// for.
//
// It is the one place that does, so that an address that cannot be is refused when the configuration is read, and whoever
// connects understands it as it was checked. It dials nothing. Its errors are phrases that go on from the name of an
// address and end with what to do; they quote nothing of it, as any part of an address that cannot be read may be a piece of
// a password.
package address

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// written is an address taken apart, its parts not yet read.
type written struct {
	scheme string
	// login is USER:PASSWORD@, or empty.
	login string
	// hosts may be several, with commas.
	hosts string
	// tail is what follows the hosts: a path and options.
	tail string
}

// takeApart finds the parts of an address. Not ok is one of which it cannot be told where they end: a password with a
// character that should have been written as %XX would end at it, and its rest be taken for a path or an option.
func takeApart(text string) (w written, ok bool) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return written{}, false
	}
	w = written{scheme: scheme, hosts: rest}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		w.hosts, w.tail = rest[:end], rest[end:]
	}
	if end := strings.LastIndexByte(w.hosts, '@') + 1; end > 0 {
		w.login, w.hosts = w.hosts[:end], w.hosts[end:]
	}
	return w, !strings.Contains(w.tail, "@")
}

const encode = "special characters in a user or a password are written as %XX: %2F for /, %3F for ?, %23 for #, " +
	"%40 for @"

// parse reads an address of one of two schemes; form says how one is written. The hosts are as they stand there; the URL
// is that of the first.
func parse(text, form string, schemes ...string) (u *url.URL, hosts []string, err error) {
	if scheme, _, found := strings.Cut(text, "://"); !found || !slices.Contains(schemes, scheme) {
		return nil, nil, fmt.Errorf("is not a URL of the scheme %s; write %s", strings.Join(schemes, " or "), form)
	}
	w, ok := takeApart(text)
	if !ok || strings.Contains(w.tail, "#") {
		return nil, nil, fmt.Errorf("has an @ behind its host or a #; write %s (%s)", form, encode)
	}
	hosts = strings.Split(w.hosts, ",")
	u, err = url.Parse(w.scheme + "://" + w.login + hosts[0] + w.tail)
	if err != nil {
		// The cause is left out: it quotes the address.
		return nil, nil, fmt.Errorf("cannot be read as a URL; write %s (%s)", form, encode)
	}
	return u, hosts, nil
}

// readHost gives HOST:PORT, with the port that is meant where none stands there.
func readHost(text, port string) (string, error) {
	u, err := url.Parse("//" + strings.TrimSpace(text)) // a space behind a comma is easily typed
	unbracketed := err == nil && strings.Contains(u.Hostname(), ":") && !strings.HasPrefix(u.Host, "[")
	if err != nil || u.Hostname() == "" || unbracketed {
		return "", errors.New("has a host that is none; write host or host:port, and an IPv6 address in brackets")
	}
	if strings.HasSuffix(u.Host, ":") || u.Port() != "" {
		port = u.Port()
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", errors.New("has a port that is no number from 1 to 65535; write host:port")
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

var errUnreadable = errors.New("has options behind its ? that cannot be read; write ?name=value&name=value, " +
	"special characters as %XX")

// readOptions gives what stands behind the ?. Only names that are known may stand there, each once.
func readOptions(u *url.URL, known []string) (url.Values, error) {
	options, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errUnreadable
	}
	for name, values := range options {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("has an option behind its ? that there is not; there are %s", strings.Join(known, ", "))
		}
		if len(values) > 1 {
			return nil, fmt.Errorf("has the option %s twice; leave one", name)
		}
		if values[0] == "" {
			return nil, fmt.Errorf("has the option %s without a value; give one, or leave the option out", name)
		}
	}
	return options, nil
}

// schemes are those of all addresses.
var schemes = []string{"redis", "rediss", "amqp", "amqps"}

// Shown is an address as people may see it, without its password and its options; empty where it may be anything. It takes
// any text, and leaves out more where it cannot tell what may be a secret.
func Shown(text string) string {
	w, ok := takeApart(text)
	if !slices.Contains(schemes, w.scheme) {
		return ""
	}
	if !ok || slices.ContainsFunc(strings.Split(w.hosts, ","), notAHost) {
		return w.scheme + "://..."
	}
	if user, _, found := strings.Cut(w.login, ":"); found {
		w.login = user + ":xxxxx@"
	} else if w.login != "" {
		w.login = "xxxxx@" // it may be a password whose colon was forgotten
	}
	if end := strings.IndexAny(w.tail, "?#") + 1; end > 0 && end < len(w.tail) {
		w.tail = w.tail[:end] + "..."
	}
	return w.scheme + "://" + w.login + w.hosts + w.tail
}

// notAHost says of what stands for a host whether it may be something else, such as a password without the @ behind it.
func notAHost(text string) bool {
	u, err := url.Parse("//" + strings.TrimSpace(text)) // its port is a number then
	return err != nil || u.Hostname() == ""
}
