package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/typedname"
	"github.com/msghandler/msghandler/internal/loop"
)

// The checks of single values. An error is a phrase that continues after the value and ends with the action.

// checks are the checks that the tag check of a field names.
var checks = map[string]func(string) error{
	"address": checkAddr, "host": checkHost, "public URL": checkPublicURL, "header": checkHeader,
	"header value": checkToken, "CIDR": checkCIDR, "caller": typedname.CheckCaller, "typed name": typedname.Check,
	"issuer": checkIssuer, "claim": checkClaim, "schedule": checkSchedule, "webhook": checkWebhook,
	"redis": checkRedisURL, "amqp": checkAMQPURL, "broker": checkBrokerURL, "DSN": checkDSN, "prefix": checkPrefix,
	"targets": checkAllow, "target": checkTarget, "moved": checkMoved, "exchange": checkExchange, "queue": checkQueue,
	"letters": checkLettersQueue, "broker name": checkBrokerRule, "name glob": checkNameGlob,
	"producer": checkOutboxProducer, "table": checkTable,
}

func checkAddr(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("is not host:port; write one such as 127.0.0.1:9090, or :9090 for all addresses")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
		return errors.New("has no port number between 0 and 65535")
	}
	return nil
}

// checkHost accepts the name in a browser's Host header, without the port.
func checkHost(s string) error {
	if s == "" || len(s) > 253 || strings.ContainsFunc(s, notHostRune) {
		return errors.New("is no host name; write one such as console.example.com, without scheme and port")
	}
	return nil
}

func notHostRune(r rune) bool { return r == ':' || notPrefixRune(r) }

func checkSchedule(s string) error {
	if err := loop.ParseSchedule(s); err != nil {
		return fmt.Errorf("is not a schedule (%w); write @every 1s or a cron line such as */5 * * * *", err)
	}
	return nil
}

func checkRedisURL(s string) error {
	_, err := address.ParseRedis(s)
	return err
}

func checkAMQPURL(s string) error {
	_, err := address.ParseAMQP(s)
	return err
}

// brokerSchemes are the checks of the URLs of brokers, by scheme. internal/app/brokers opens what they name.
var brokerSchemes = map[string]func(url string) error{
	"amqp":  checkAMQPURLs,
	"amqps": checkAMQPURLs,
	"kafka": func(url string) error { _, err := address.ParseKafka(url); return err },
	"nats":  checkNATSURL,
	"tls":   checkNATSURL,
}

// BrokerSchemes are the schemes of brokers.NAME.url, sorted.
func BrokerSchemes() []string { return slices.Sorted(maps.Keys(brokerSchemes)) }

// checkBrokerURL quotes nothing of the URL: a part of a malformed one may be a piece of a password.
func checkBrokerURL(s string) error {
	scheme, _, _ := strings.Cut(s, "://")
	if check := brokerSchemes[scheme]; check != nil {
		return check(s)
	}
	return fmt.Errorf("is not a URL of a broker; the schemes are %s", strings.Join(BrokerSchemes(), ", "))
}

func checkNATSURL(url string) error {
	_, err := address.ParseNATS(url)
	return err
}

func checkAMQPURLs(s string) error {
	for _, u := range splitList(s) {
		if _, err := address.ParseAMQP(u); err != nil {
			return err
		}
	}
	return nil
}

func checkPrefix(s string) error {
	if s == "" || len(s) > 64 {
		return errors.New("must have 1 to 64 characters")
	}
	if i := strings.IndexFunc(s, notPrefixRune); i >= 0 {
		return fmt.Errorf("holds %q; only letters, digits and . _ : - may stand in a prefix", s[i])
	}
	return nil
}

func notPrefixRune(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letter && !strings.ContainsRune("._:-", r)
}

func checkAllow(s string) error {
	if err := checkGlob(s); err != nil {
		return err
	}
	if i := strings.LastIndex(s, ":"); i <= 0 || i == len(s)-1 {
		return errors.New("is not a glob on host:port; write one such as *.orders.svc:9000 or 127.0.0.1:*")
	}
	if strings.Contains(s, "://") {
		return errors.New("has a scheme; write host:port only")
	}
	return nil
}

func checkGlob(s string) error {
	if _, err := path.Match(s, ""); err != nil {
		return errors.New("is not a glob: a bracket is not closed")
	}
	return nil
}

func checkCIDR(s string) error {
	if _, err := netip.ParsePrefix(s); err != nil {
		return errors.New("is not a CIDR; write one such as 10.0.0.0/8 or fd00::/8")
	}
	return nil
}

func checkExchange(s string) error {
	switch {
	case len(s) > 255:
		return errors.New("is longer than 255 bytes")
	case strings.HasPrefix(s, "amq."):
		return errors.New("begins with amq., which RabbitMQ keeps for itself; declare an exchange of your own")
	}
	return nil
}

// checkTarget checks the form only. callbacks.allow decides at each call whether the target may be dialled. No error
// quotes the target.
func checkTarget(s string) error {
	if scheme, rest, _ := strings.Cut(s, "://"); scheme == "http" || scheme == "https" {
		if strings.ContainsAny(rest, "@?#%,= ") || strings.HasPrefix(rest, "/") || rest == "" {
			return errors.New("is not a URL that can be called; write https://host:port/path, without a user, a query or " +
				"a fragment")
		}
		return nil
	}
	target := strings.TrimPrefix(s, "dns:///")
	if strings.Contains(target, "//") || checkAddr(target) != nil {
		return errors.New("is not a callback target; write host:port, dns:///host:port, http://host/path or " +
			"https://host/path")
	}
	return nil
}

func checkMoved(s string) error {
	from, to, found := strings.Cut(s, "=")
	if !found || checkTarget(from) != nil || checkTarget(to) != nil {
		return errors.New("is not OLD=NEW; write two callback targets, such as old.svc:9000=new.svc:9000")
	}
	return nil
}

// checkWebhook accepts an absolute URL or the empty text. The URL may hold a secret, so no error quotes the URL.
func checkWebhook(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("is no URL; write http://HOST/PATH or https://HOST/PATH")
	}
	return nil
}

// checkToken accepts the characters that a header may hold.
func checkToken(s string) error {
	for _, r := range s {
		if r <= ' ' || r > '~' {
			return errors.New("holds what cannot stand in a header: printable ASCII without spaces only")
		}
	}
	return nil
}

// checkPublicURL accepts the URL of the root of the console, or the empty text.
func checkPublicURL(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("is no URL of a console; write https://HOST or https://HOST:PORT, without a path")
	}
	return nil
}

// checkHeader accepts the name of a header that a proxy may name users in, or the empty text.
func checkHeader(s string) error {
	switch strings.ToLower(s) {
	case "authorization", "connection", "cookie", "host", "origin":
		return errors.New("has a meaning of its own, and names no user; write a header such as X-Forwarded-User")
	}
	notName := func(r rune) bool { return r != '-' && (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z') }
	if strings.ContainsFunc(s, notName) {
		return errors.New("is no name of a header; write one such as X-Forwarded-User")
	}
	return nil
}

func checkQueue(s string) error {
	if s == "" || len(s) > 255 {
		return errors.New("is no queue's name; it has 1 to 255 bytes")
	}
	return nil
}
