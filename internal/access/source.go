package access

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// ErrUnavailable is in the error of a source that cannot judge a token now: the caller may try again.
var ErrUnavailable = errors.New("the source of identities is unavailable")

// CheckIssuer refuses a URL that can be no issuer of JSON Web Tokens. The error is a phrase that follows the URL.
func CheckIssuer(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("is no URL of an issuer; write https://HOST/PATH, without a user, a query or a fragment")
	}
	return CheckSecureURL(text)
}

// CheckSecureURL refuses a URL whose server cannot be trusted: without TLS, and not on this machine. The error is a
// phrase that follows the URL.
func CheckSecureURL(text string) error {
	u, err := url.Parse(text)
	if err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && isLoopback(u.Hostname())) {
		return nil
	}
	return errors.New("does not begin with https://; http:// is for trials on the loopback")
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// longestProducer is the longest glob on names of producers.
const longestProducer = 100

// CheckProducerGlob refuses a glob that no producer's name can match.
func CheckProducerGlob(glob string) error {
	if glob == "" || len(glob) > longestProducer || strings.ContainsFunc(glob, notGlobRune) {
		return fmt.Errorf("a producer has 1 to %d of A-Z a-z 0-9 . _ -, and * for any text", longestProducer)
	}
	return nil
}

func notGlobRune(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-*", r)
}
