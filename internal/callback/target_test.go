package callback

import (
	"errors"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/must"
)

func TestATargetHasOneForm(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"orders:9000":                   "dns:///orders:9000",
		"dns:///orders:9000":            "dns:///orders:9000",
		"Orders.SVC:9000":               "dns:///orders.svc:9000",
		"orders.svc.:9000":              "dns:///orders.svc.:9000",
		"10.0.0.1:9000":                 "dns:///10.0.0.1:9000",
		"127.0.0.1.:9000":               "dns:///127.0.0.1:9000",
		"dns:///10.0.0.1.:9000":         "dns:///10.0.0.1:9000",
		"[2001:DB8::1]:9000":            "dns:///[2001:db8::1]:9000",
		"[::ffff:127.0.0.1]:9000":       "dns:///127.0.0.1:9000",
		"dns:///my_service-1.local:443": "dns:///my_service-1.local:443",
		"http://orders":                 "http://orders",
		"HTTP://Orders.SVC:80/":         "http://orders.svc",
		"http://orders:443/Msg":         "http://orders:443/Msg",
		"https://orders:443/a/b.c~d+e/": "https://orders/a/b.c~d+e",
		"https://orders:8443":           "https://orders:8443",
		"http://[::1]":                  "http://[::1]",
		"http://[2001:DB8::1]:80/x":     "http://[2001:db8::1]/x",
		"http://[::ffff:10.0.0.1]:8080": "http://10.0.0.1:8080",
		"https://10.0.0.1./x":           "https://10.0.0.1/x",
	} {
		got, err := parseTarget(in)
		if err != nil || got.String() != want {
			t.Errorf("%s: got %s, %v; want %s", in, got, err, want)
		}
	}
}

func TestOtherTargetsAreRefused(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"orders", ":9000", "orders:", "orders:0", "orders:65536", "orders:+1", "orders:http", "orders:09000",
		"unix:/tmp/x", "unix:///tmp/x", "passthrough:///10.0.0.1:80", "xds:///orders:9000", "DNS:///orders:9000",
		"dns://8.8.8.8/orders:9000", "dns:orders:9000", "dns:////orders:9000", "ipv4:127.0.0.1:80",
		"a:1,b:2", "orders:9000/x", "user@orders:9000", "or ders:9000", "orders..svc:9000", "-\x00:1", "::1:9000",
		"127.0.0.1..:9000", "[::1.]:9000", "[fe80::1%eth0]:9000", "[orders]:x", "órders:9000", "orders:9000?x=1",
		"orders:9000#x", "%6fo:1",
		"http://", "http:///x", "http://:80", "http:orders", "http:/orders", "https://orders:0", "https://orders:http",
		"http://user@orders", "http://user:s3cret@orders/x", "http://orders/x?token=s3cret", "http://orders/x#s3cret",
		"http://orders?", "http://orders#", "http://orders//x", "http://orders/../x", "http://orders/./x",
		"http://orders/x//", "http://orders//", " http://user:s3cret@orders/x", "htps://user:s3cret@orders/x",
		"//user:s3cret@orders:80", "http:/user:s3cret@orders", "user:s3cret@orders:80", "s3cret@orders:80",
		"http://orders/%2e%2e/x", "http://orders/a b", "http://orders\\x", "http://orders/x,http://b", "http://orders/a=b",
		"http://::1/x", "http://[::1/x", "http://[fe80::1%eth0]/x", "http://órders", "http://orders/\x00", "ftp://orders/x",
		"ws://orders/x", "http+unix://orders/x", "http://or*/x", "http://orders/" + strings.Repeat("x", 400),
		strings.Repeat("a", 64) + ":9000", strings.Repeat("a.", 200) + "b:9000", strings.Repeat("9", 1<<16) + ":1",
	} {
		if got, err := parseTarget(in); !errors.Is(err, halfmsg.ErrBadTarget) {
			t.Errorf("%.80q: got %s, %v; want ErrBadTarget", in, got, err)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// The name of a scheme alone is no URL without a host.
func TestSchemeAloneIsNoURL(t *testing.T) {
	t.Parallel()
	if _, err := parseTarget("https"); err == nil || !strings.Contains(err.Error(), `"https"; write host:port`) {
		t.Errorf("got %v", err)
	}
}

func TestTheAllowListDecides(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name            string
		allow, networks []string
		target          string
		forbidden       bool
	}{
		{"nothing is allowed by default", nil, nil, "orders:9000", true},
		{"a glob on the host", []string{"*.orders.svc:9000"}, nil, "a.orders.svc:9000", false},
		{"a star spans dots", []string{"*.svc:9000"}, nil, "a.b.c.svc:9000", false},
		{"in another case", []string{"*.Orders.svc:9000"}, nil, "A.ORDERS.svc:9000", false},
		{"with the root's dot", []string{"orders.svc:9000"}, nil, "orders.svc.:9000", false},
		{"another port", []string{"*.orders.svc:9000"}, nil, "a.orders.svc:9001", true},
		{"a host that only ends alike", []string{"*.orders.svc:9000"}, nil, "evilorders.svc:9000", true},
		{"a host that only begins alike", []string{"orders:*"}, nil, "orders.evil.example:9000", true},
		{"no star between host and port", []string{"orders*:9000"}, nil, "orders:19000", true},
		{"a glob on the port", []string{"orders:90*"}, nil, "orders:9012", false},
		{"a literal loopback that is named", []string{"127.0.0.1:*"}, nil, "127.0.0.1:9000", false},
		{"and in another guise", []string{"127.0.0.1:*"}, nil, "[::ffff:127.0.0.1]:9000", false},
		{"and with the root's dot", []string{"127.0.0.1:*"}, nil, "127.0.0.1.:9000", false},
		{"a literal loopback that a star caught, with the root's dot", []string{"*:9000"}, nil, "127.0.0.1.:9000", true},
		{
			"a literal in no network, with the root's dot",
			[]string{"*:9000"},
			[]string{"10.0.0.0/8"},
			"192.168.0.1.:9000",
			true,
		},
		{"a literal in a network, with the root's dot", []string{"*:9000"}, []string{"10.0.0.0/8"}, "10.1.2.3.:9000", false},
		{"a URL whose port is named", []string{"orders:8080"}, nil, "http://orders:8080/x", false},
		{"a URL with the port of http", []string{"orders:80"}, nil, "http://orders/x", false},
		{"a URL with the port of https", []string{"orders:443"}, nil, "https://orders/x", false},
		{"a URL with the port of the other scheme", []string{"orders:80"}, nil, "https://orders/x", true},
		{"a URL of the metadata service that a star caught", []string{"*:80"}, nil, "http://169.254.169.254/latest", true},
		{"a URL of localhost", []string{"*:*"}, nil, "http://localhost/x", true},
		{"a literal loopback of IPv6 that is named", []string{"[::1]:*"}, nil, "[::1]:9000", false},
		{"a literal loopback that a star caught", []string{"*:9000"}, nil, "127.0.0.1:9000", true},
		{"the metadata service that a star caught", []string{"*:80"}, nil, "169.254.169.254:80", true},
		{"a literal in no network", []string{"*:9000"}, []string{"10.0.0.0/8"}, "192.168.0.1:9000", true},
		{"a literal in a network", []string{"*:9000"}, []string{"10.0.0.0/8"}, "10.1.2.3:9000", false},
		{
			"a literal in no network, but named",
			[]string{"192.168.0.*:9000"},
			[]string{"10.0.0.0/8"},
			"192.168.0.1:9000",
			false,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client, err := New(Config{Allow: c.allow, Networks: c.networks}.WithDefaults())
			must.Succeed(t, err)
			defer client.Close()
			if _, err := client.Resolve("p", c.target); errors.Is(err, halfmsg.ErrForbidden) != c.forbidden {
				t.Errorf("got %v, want forbidden: %t", err, c.forbidden)
			}
		})
	}
}

func TestAnEmptyTargetIsConfigured(t *testing.T) {
	t.Parallel()
	config := Config{Allow: []string{"orders:*"}, Targets: map[string]string{"orders": "orders:9000"}}
	client, err := New(config.WithDefaults())
	must.Succeed(t, err)
	defer client.Close()
	if got, err := client.Resolve("orders", ""); err != nil || got != "dns:///orders:9000" {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := client.Resolve("others", ""); !errors.Is(err, halfmsg.ErrNoTarget) {
		t.Errorf("got %v, want ErrNoTarget", err)
	}
}

func TestAMovedProducerIsCalledThere(t *testing.T) {
	t.Parallel()
	client, err := New(Config{
		Allow: []string{"new:*", "far:*"},
		Moved: [][2]string{
			{"Old:9000", "new:9001"},
			{"dns:///older:9000", "new:9002"},
			{"new:9009", "far:1"},
			{"older:9009", "https://new/x"},
			{"http://Old/", "new:9004"},
		},
		Targets: map[string]string{"orders": "new:9009"},
	}.WithDefaults())
	must.Succeed(t, err)
	defer client.Close()
	for named, want := range map[string]string{
		"old:9000": "dns:///new:9001", "dns:///OLD:9000": "dns:///new:9001", "older:9000": "dns:///new:9002",
		"older:9009": "https://new/x", "http://old:80": "dns:///new:9004",
		"new:9003": "dns:///new:9003", "new:9009": "dns:///far:1", "": "dns:///far:1",
	} {
		if got, err := client.Resolve("orders", named); err != nil || got != want {
			t.Errorf("%q: got %s, %v, want %s", named, got, err, want)
		}
	}
	if _, err := client.Resolve("orders", "old:9001"); !errors.Is(err, halfmsg.ErrForbidden) {
		t.Errorf("another port of the host: got %v, want ErrForbidden", err)
	}
}

func TestBadConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]Config{
		"glob without port":            {Allow: []string{"orders"}},
		"glob with another wildcard":   {Allow: []string{"orders?:9000"}},
		"glob with a scheme":           {Allow: []string{"dns:///orders:9000"}},
		"no CIDR":                      {Networks: []string{"10.0.0.1"}},
		"configured target forbidden":  {Targets: map[string]string{"orders": "orders:9000"}},
		"moved to what is forbidden":   {Allow: []string{"old:*"}, Moved: [][2]string{{"old:1", "new:1"}}},
		"moved from what is no target": {Allow: []string{"*:*"}, Moved: [][2]string{{"unix:/x", "new:1"}}},
		"moved to two places":          {Allow: []string{"*:*"}, Moved: [][2]string{{"old:1", "new:1"}, {"OLD:1", "far:1"}}},
		"moved and moved again":        {Allow: []string{"*:*"}, Moved: [][2]string{{"old:1", "new:1"}, {"new:1", "far:1"}}},
		"configured target unreadable": {Allow: []string{"*:*"}, Targets: map[string]string{"orders": "unix:/x"}},
	} {
		if _, err := New(config.WithDefaults()); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func FuzzParseTarget(f *testing.F) {
	f.Add("dns:///orders:9000")
	f.Add("[::1]:80")
	f.Add("https://orders:443/a/b")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseTarget(s)
		if err != nil {
			return
		}
		if again, err := parseTarget(got.String()); err != nil || again != got {
			t.Errorf("%q became %q, which became %q, %v", s, got, again, err)
		}
	})
}
