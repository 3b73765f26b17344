package pages

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// atHome answers only where the console is asked for by a name that is known to be its own. A site can lend its name to our
// address (DNS rebinding); the browser then takes our pages for that site's, and its scripts read them and send our forms.
// No site can lend an IP address, nor localhost.
func (p *Pages) atHome(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := (&url.URL{Host: r.Host}).Hostname()
		if !p.known(name) {
			http.Error(w, fmt.Sprintf("The console is not known by the name %q, which another site may have given it. "+
				"If the name is its own, add it to http.hosts.", name), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (p *Pages) known(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	same := func(own string) bool { return name != "" && strings.EqualFold(own, name) }
	return same("localhost") || slices.ContainsFunc(p.config.Hosts, same)
}
