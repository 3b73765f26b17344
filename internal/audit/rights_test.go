package audit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/audit"
)

// A viewer comes from any number of addresses. Neither the bound of equal records nor that of a list is shared.
func TestViewersLoginsHideNoAdmin(t *testing.T) {
	for _, high := range []access.Role{access.Operator, access.Admin} {
		a := newTrail(t, 10)
		a.Connect(store(t, "redis://"+miniredis.RunT(t).Addr()))
		logIn := func(name string, role access.Role, from string) {
			who := access.Identity{Name: name, Kind: access.Token, Role: role}
			a.Record(access.With(t.Context(), who), audit.Record{From: from, Action: audit.Login, Result: audit.Done})
		}
		logIn("token:first", high, "10.0.0.1:1")
		for i := range 300 {
			logIn("token:viewer", access.Viewer, fmt.Sprintf("10.1.%d.%d:1", i/100, i%100))
		}
		logIn("token:last", high, "10.0.0.2:1")
		a.close(t)
		for _, name := range []string{"token:first", "token:last"} {
			if kept := a.list(t, audit.Query{By: name}); len(kept) != 1 {
				t.Errorf("%d logins of the %s %s are kept", len(kept), high, name)
			}
		}
	}
}

// The log has each destination of a replay, and a kept record says how many it lacks.
func TestDestinationsAreCountedBeyondTheBound(t *testing.T) {
	a := newTrail(t, 10)
	a.Connect(store(t, "redis://"+miniredis.RunT(t).Addr()))
	to := make([]string, 250)
	for i := range to {
		to[i] = fmt.Sprintf("1 to exchange %q, routing key %q", "shop", fmt.Sprint("key", i))
	}
	a.Record(t.Context(), audit.Record{
		Action: audit.ReplayDeadLetters, Names: []string{"orders/1"}, Destinations: to, Result: audit.Done,
	})
	a.close(t)
	kept := a.list(t, audit.Query{})[0].Destinations
	n := len(kept) - 1
	if n < 20 || kept[0] != to[0] || kept[n] != fmt.Sprintf("and %d more destinations, which the log names", 250-n) {
		t.Errorf("the record has %q", kept)
	}
	for i := range to {
		if !strings.Contains(a.log.String(), fmt.Sprintf("key%d\\", i)) {
			t.Fatalf("the log lacks %s: %s", to[i], a.log.String())
		}
	}
}
