// Package address parses the addresses of Redis, RabbitMQ, Kafka, NATS and coordinators: hosts, users, and options.
//
// All addresses are parsed here, so that a malformed address is refused when the configuration is read, and the
// connection uses the address exactly as checked. The package dials nothing. Its errors continue the name of an
// address and end with the remedy. They quote nothing of the address, because any part of a malformed address may be
// a piece of a password.
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
	// tail is the text after the hosts: a path and options.
	tail string
}

// takeApart finds the parts of an address. ok is false if the end of the hosts is ambiguous: an unescaped special
// character in a password would end the hosts, and the rest of the password would become a path or an option.
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

// parse reads an address of one of the schemes; form is the expected form. The hosts are unchanged; the URL has the
// first host.
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
		// The cause is left out: its text quotes the address.
		return nil, nil, fmt.Errorf("cannot be read as a URL; write %s (%s)", form, encode)
	}
	return u, hosts, nil
}

// readHost returns HOST:PORT, with the default port if the text has none.
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

// readOptions returns the options after the ?. Only known names are allowed, each once.
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

// Shown is an address for display, without its password and its options; empty if the scheme is unknown. Shown takes
// any text, and leaves out more if the end of a secret is ambiguous.
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
		w.login = "xxxxx@" // may be a password without its colon
	}
	if end := strings.IndexAny(w.tail, "?#") + 1; end > 0 && end < len(w.tail) {
		w.tail = w.tail[:end] + "..."
	}
	return w.scheme + "://" + w.login + w.hosts + w.tail
}

// notAHost reports whether a host may be something else, such as a password without the @ behind it.
func notAHost(text string) bool {
	u, err := url.Parse("//" + strings.TrimSpace(text)) // its port is a number then
	return err != nil || u.Hostname() == ""
}
