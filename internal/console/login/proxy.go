package login

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/msghandler/msghandler/internal/access"
)

// Proxy is a proxy with a login of its own, which names the user of each request in a header.
type Proxy struct {
	// Header is the name of the header.
	Header string
	// Trusted are the addresses of the proxies.
	Trusted []netip.Prefix
}

// maxUser bounds the name of a user.
const maxUser = 200

var (
	errUserHeaderTwice = errors.New("the proxy sent its header of the user more than once: it must replace the header")
	errUserName        = errors.New("the name of the user that the proxy sent is longer than 200 bytes, or unprintable")
)

// identify is the user whom a trusted proxy names. The header of anyone else is removed.
func (p *Proxy) identify(r *http.Request) (identity access.Identity, named bool, err error) {
	values := r.Header.Values(p.Header)
	r.Header.Del(p.Header)
	if len(values) == 0 || !p.trusts(peerOf(r)) {
		return access.Identity{}, false, nil
	}
	user := strings.TrimSpace(values[0])
	switch {
	case len(values) > 1:
		return access.Identity{}, false, errUserHeaderTwice
	case user == "": // the proxy lets this request pass without a login
		return access.Identity{}, false, nil
	case len(user) > maxUser || strings.ContainsFunc(user, unprintable):
		return access.Identity{}, false, errUserName
	}
	name := "proxy:" + user
	return access.Identity{Kind: access.Proxy, Name: name, Names: []string{name}}, true, nil
}

func unprintable(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

func (p *Proxy) trusts(addr netip.Addr) bool {
	for _, network := range p.Trusted {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}
