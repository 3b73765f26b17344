package expiry

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// Book has all certificates in use. The zero value of a Book has none. A Book is safe for concurrent use.
type Book struct {
	mu      sync.Mutex
	sources []func(now time.Time) []Certificate
	servers []*Servers
	// logged is what the log has of each certificate, by its identity, for Log.
	logged map[Certificate]line
}

// line is the last log line about a certificate.
type line struct {
	// passed is how many passed marks the log has.
	passed int
	// at is when the certificate was last in use.
	at time.Time
}

// maxLogged bounds the certificates that are remembered because the log has them.
const maxLogged = 4096

// Add adds certificates, which are asked for at each look.
func (b *Book) Add(source func(now time.Time) []Certificate) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sources = append(b.sources, source)
}

// Servers adds the servers behind a key of the configuration. Dial is for a further look at them; nil: their
// connections do not last so long.
func (b *Book) Servers(key string, dial Dial) *Servers {
	s := &Servers{key: key, dial: dial}
	b.Add(s.certificates)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servers = append(b.servers, s)
	return s
}

// Forget forgets a server behind a key: nothing connects to the server any more, and the end of its certificate does
// not matter.
func (b *Book) Forget(key, server string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.servers {
		if s.key == key {
			s.forget(server)
		}
	}
}

// All are the certificates in use, the first to end first.
func (b *Book) All(now time.Time) (all []Certificate) {
	b.mu.Lock()
	sources := slices.Clone(b.sources)
	b.mu.Unlock()
	for _, source := range sources {
		all = append(all, source(now)...)
	}
	slices.SortFunc(all, func(a, b Certificate) int {
		return cmp.Or(a.Ends.Compare(b.Ends), cmp.Compare(a.Holder, b.Holder), cmp.Compare(a.Key, b.Key))
	})
	return slices.Compact(all) // several nodes of a broker name one file of authorities
}

// Soonest is of each key the certificate that ends first.
func (b *Book) Soonest(now time.Time) map[string]Certificate {
	first := map[string]Certificate{}
	for _, c := range b.All(now) {
		if _, later := first[c.Key]; !later {
			first[c.Key] = c
		}
	}
	return first
}

// Log writes a line about each certificate that has passed one more of the marks: 30, 7 and 1 days before the end, the
// end, and 1, 7 and 30 days after the end. Only one caller at a time may call Log.
func (b *Book) Log(logger *slog.Logger, now time.Time) {
	logged := map[Certificate]line{}
	for _, c := range b.All(now) {
		id := c.identity()
		logged[id] = line{c.passed(now), now}
		if logged[id].passed <= b.logged[id].passed {
			continue
		}
		ends := c.Ends.UTC().Format(time.RFC3339)
		if c.IsOver(now) {
			logger.Error("a certificate has expired: new connections with the certificate fail; renew the certificate",
				"key", c.Key, "certificate", c.Holder, "ends", ends)
			continue
		}
		logger.Warn("a certificate ends soon: new connections with the certificate will fail; renew the certificate",
			"key", c.Key, "certificate", c.Holder, "ends", ends, "days_left", int(c.Left(now)/day))
	}
	// Replicas behind one name may show several certificates in turn.
	for id, last := range b.logged {
		if _, inUse := logged[id]; !inUse && last.passed > 0 && now.Sub(last.at) < forgetAfter && len(logged) < maxLogged {
			logged[id] = last
		}
	}
	b.logged = logged
}

// Due says which certificates have ended and which end soon, in a text for each; empty: none does. A server whose
// certificate was refused is left out: the part that needs the server reports it.
func Due(all []Certificate, now time.Time) (over, soon string) {
	var ended, ending []Certificate
	for _, c := range all {
		switch {
		case c.Refused:
		case c.IsOver(now):
			ended = append(ended, c)
		case c.EndsSoon(now):
			ending = append(ending, c)
		}
	}
	if len(ended) > 0 {
		over = "expired certificates: " + list(ended, now)
	}
	if len(ending) > 0 {
		soon = "certificates end soon: " + list(ending, now)
	}
	return over, soon
}

// maxListed bounds the certificates that a text lists.
const maxListed = 4

// list names certificates with their ends. One file or server is named once, with all its keys.
func list(all []Certificate, now time.Time) string {
	var parts []string
	keys := map[Certificate][]string{}
	for _, c := range all {
		id := c.identity()
		id.Key = ""
		keys[id] = append(keys[id], c.Key)
	}
	listed := 0
	for _, c := range all {
		id := c.identity()
		id.Key = ""
		of, unlisted := keys[id]
		if !unlisted {
			continue
		}
		delete(keys, id)
		if listed++; listed > maxListed {
			continue
		}
		parts = append(parts, fmt.Sprintf("%s (%s) %s", c.Holder, strings.Join(of, ", "), c.when(now)))
	}
	if more := listed - maxListed; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, "; ")
}

// when says when the certificate ends, or when the certificate expired. A connection that has been open for long does
// not see a new certificate of the server.
func (c Certificate) when(now time.Time) string {
	at, shown := c.Ends.UTC().Format("2006-01-02 15:04 UTC"), ""
	if !c.Shown.IsZero() && now.Sub(c.Shown) > day {
		shown = ", as shown on " + c.Shown.UTC().Format(time.DateOnly)
	}
	if c.IsOver(now) {
		return "expired on " + at + shown
	}
	left := c.Left(now)
	if left < 2*day {
		return fmt.Sprintf("ends on %s, in %d h%s", at, left/time.Hour, shown)
	}
	return fmt.Sprintf("ends on %s, in %d days%s", at, left/day, shown)
}
