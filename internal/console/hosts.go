package console

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// knownHost answers only requests for a known host name. A site can point its name to our address (DNS rebinding); then
// the browser takes our pages for the site's, and the site's scripts read the pages and send our forms. No site can do
// so with an IP address, or with localhost.
func (c *Console) knownHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := (&url.URL{Host: r.Host}).Hostname()
		if !c.known(name) {
			http.Error(w, fmt.Sprintf("%q is not a known name of this console; another site may have sent the request. "+
				"If the console has this name, add it to http.hosts.", name), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (c *Console) known(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	same := func(own string) bool { return name != "" && strings.EqualFold(own, name) }
	return same("localhost") || slices.ContainsFunc(c.config.Hosts, same)
}

// guarded restricts each page to our own style, script and forms, and lets no other site show it. The referrer stays
// within this site: without any, browsers call the origin of our own forms unknown where there is no HTTPS. A browser
// that has come by TLS comes by TLS for a year; before a proxy that encrypts, the header is the proxy's.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "+
			"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		if r.TLS != nil {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}
