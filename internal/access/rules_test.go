package access_test

import (
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/ground/typedname"
	"github.com/msghandler/msghandler/test/must"
)

func TestGlobsMatchLabels(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		glob, name string
		matches    bool
	}{
		{"dns:*.ops.shop", "dns:anna.ops.shop", true},
		{"dns:*.ops.shop", "dns:a.b.ops.shop", false},
		{"dns:*.ops.shop", "dns:.ops.shop", false},
		{"dns:*.ops.shop", "dns:ops.shop", false},
		{"dns:web-*.shop", "dns:web-1.shop", true},
		{"dns:w*b-*1.shop", "dns:web-11.shop", true},
		{"dns:w*b-*1.shop", "dns:web-12.shop", false},
		{"dns:*", "dns:localhost", true},
		{"dns:*", "dns:orders.shop", false},
		{"dns:orders.shop", "uri:orders.shop", false},
		{"dns:orders.shop", "cn:orders.shop", false},
		{"uri:spiffe://shop/ops/*", "uri:spiffe://shop/ops/anna", true},
		{"uri:spiffe://shop/ops/*", "uri:spiffe://shop/ops/anna/x", false},
		{"uri:spiffe://shop/ops/*", "uri:spiffe://shop/ops/", false},
		{"uri:spiffe://*/ops", "uri:spiffe://a.b.c/ops", true},
		{"email:*@shop.example", "email:anna.b@shop.example", true},
		{"email:*@shop.example", "email:a@b@shop.example", false},
		{"email:*@*.example", "email:anna@x.shop.example", true},
		{"email:*", "email:anna@shop.example", false},
		{"cn:anna *", "cn:anna smith", true},
		{"cn:*", "cn:a/b", false},
		{"token:ci-*", "token:ci-1", true},
		{"token:*", "jwt:anna", false},
		{"jwt:*@shop.example", "jwt:anna@shop.example", true},
		{"proxy:anna", "proxy:anna", true},
	} {
		made, err := access.NewAuthenticator(access.Rules{Admins: []string{tc.glob}})
		if err != nil {
			t.Errorf("%s: %v", tc.glob, err)
			continue
		}
		got := made.Complete(access.Identity{Names: []string{tc.name}}).Role == access.Admin
		if got != tc.matches {
			t.Errorf("%s matches %s: %t, want %t", tc.glob, tc.name, got, tc.matches)
		}
	}
}

func TestInvalidGlobsAreNamed(t *testing.T) {
	t.Parallel()
	const listed = "dns:, uri:, email:, cn:, token:, jwt:"
	for _, tc := range []struct {
		glob, operator, caller string
	}{
		{"dns:*.shop", "", ""},
		{"", listed, listed},
		{"*", listed, listed},
		{"*.shop", listed, listed},
		{"spiffe://shop/*", listed, listed},
		{"dsn:*.shop", listed, listed},
		{"mail:anna", listed, listed},
		{"dns:", `nothing after "dns:"`, `nothing after "dns:"`},
		{"dns:[a-z].shop", "only wildcard", "only wildcard"},
		{"dns:{producer}.shop", "{producer}", ""},
		{"{producer}.shop", "{producer}", listed},
		{"[.shop", listed, listed},
	} {
		for check, c := range map[string]struct {
			of   func(string) error
			want string
		}{
			"operator": {typedname.Check, tc.operator}, "caller": {typedname.CheckCaller, tc.caller},
		} {
			err := c.of(tc.glob)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s as %s: got %v, want %q", tc.glob, check, err, c.want)
			}
		}
	}
	if _, err := access.NewAuthenticator(access.Rules{CallersOf: map[string][]string{"a": {"dsn:x"}}}); err == nil {
		t.Error("an Authenticator takes an invalid glob")
	}
}

func TestCallersActAsTheirProducers(t *testing.T) {
	t.Parallel()
	made, err := access.NewAuthenticator(access.Rules{
		Callers: []string{"dns:{producer}.shop", "token:{producer}", "cn:{producer}.old"},
		CallersOf: map[string][]string{
			"stock": {"dns:warehouse.shop"},
		},
	})
	must.Succeed(t, err)
	for _, tc := range []struct {
		name, producer string
		may            bool
	}{
		{"dns:orders.shop", "orders", true},
		{"dns:orders.shop", "stock", false},
		{"dns:orders.shop", "Orders", false},
		{"dns:orders.eu.shop", "orders.eu", true},
		{"dns:orders.shop", "*", false},
		{"dns:orders.shop", "", false},
		{"dns:.shop", "", false},
		{"cn:orders.old", "orders", true},
		{"cn:orders.old", "*", false},
		{"cn:orders.old", "[o]rders", false},
		{"token:orders", "orders", true},
		{"jwt:orders", "orders", false},
		{"dns:stock.shop", "stock", false}, // its own rule counts alone
		{"dns:warehouse.shop", "stock", true},
	} {
		caller := made.Complete(access.Identity{Names: []string{tc.name}})
		if got := caller.MayCallAs(tc.producer); got != tc.may {
			t.Errorf("%s as %q: %t, want %t", tc.name, tc.producer, got, tc.may)
		}
	}
}

func TestSourceAndRuleGrantsAreJoined(t *testing.T) {
	t.Parallel()
	made, err := access.NewAuthenticator(access.Rules{
		Readers: []string{"token:*"}, Operators: []string{"token:ci"}, Callers: []string{"token:{producer}"},
	})
	must.Succeed(t, err)
	of := func(name string, role access.Role, producers ...string) access.Identity {
		return made.Complete(access.Identity{Names: []string{name}, Role: role, Producers: producers})
	}
	for _, tc := range []struct {
		caller access.Identity
		role   access.Role
		as     string
		may    bool
	}{
		{of("token:a", access.NoRole), access.Reader, "b", false},
		{of("token:a", access.Admin), access.Admin, "a", true},
		{of("token:ci", access.Viewer, "shop-*"), access.Operator, "shop-orders", true},
		{of("token:ci", access.Viewer, "shop-*"), access.Operator, "orders", false},
		{of("jwt:x", access.NoRole, "*"), access.NoRole, "", true},
		{access.Identity{}, access.NoRole, "a", false},
	} {
		if tc.caller.Role != tc.role || tc.caller.MayCallAs(tc.as) != tc.may {
			t.Errorf("%v: got %v and %t as %q", tc.caller.Names, tc.caller.Role, tc.caller.MayCallAs(tc.as), tc.as)
		}
	}
}

// A certificate that no rule names may do nothing, whichever rules there are.
func TestWhatNoRuleGrantsIsDenied(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		rules        access.Rules
		role         access.Role
		orders, free bool
	}{
		"nothing":        {access.Rules{}, access.NoRole, false, false},
		"admins":         {access.Rules{Admins: []string{"dns:*.ops"}}, access.NoRole, false, false},
		"callers":        {access.Rules{Callers: []string{"dns:*.shop"}}, access.NoRole, false, false},
		"callers of one": {access.Rules{CallersOf: map[string][]string{"orders": {"dns:x"}}}, access.NoRole, true, false},
		"strangers":      {access.Rules{Anonymous: true}, access.NoRole, false, false},
		"this one":       {access.Rules{Viewers: []string{"dns:*"}, Callers: []string{"dns:x"}}, access.Viewer, true, true},
	} {
		made, err := access.NewAuthenticator(tc.rules)
		must.Succeed(t, err)
		caller := made.Complete(access.Identity{Kind: access.Certificate, Names: []string{"dns:x"}})
		if caller.Role != tc.role || caller.MayCallAs("orders") != tc.orders || caller.MayCallAs("free") != tc.free {
			t.Errorf("%s: got %v, %t, %t", what, caller.Role, caller.MayCallAs("orders"), caller.MayCallAs("free"))
		}
	}
}

func TestUseReplacesTheRules(t *testing.T) {
	t.Parallel()
	a, err := access.NewAuthenticator(access.Rules{Admins: []string{"dns:old"}})
	must.Succeed(t, err)
	role := func(name string) access.Role { return a.Complete(access.Identity{Names: []string{name}}).Role }
	if err := a.Use(access.Rules{Viewers: []string{"dns:[old"}}); err == nil {
		t.Error("an invalid glob is used")
	}
	if role("dns:old") != access.Admin {
		t.Error("refused rules have changed something")
	}
	must.Succeed(t, a.Use(access.Rules{Viewers: []string{"dns:new"}, Callers: []string{"dns:new"}}))
	if role("dns:old") != access.NoRole || role("dns:new") != access.Viewer ||
		!a.Complete(access.Identity{Names: []string{"dns:new"}}).MayCallAs("orders") {
		t.Error("the new rules are not used")
	}
}
