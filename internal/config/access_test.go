package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/msghandler/msghandler/internal/config"
)

func TestListenersThatOthersReachAreKnown(t *testing.T) {
	t.Parallel()
	for addr, exposed := range map[string]bool{
		"127.0.0.1:1": false, "127.8.8.8:1": false, "[::1]:1": false, "[::ffff:127.0.0.1]:1": false, "localhost:1": false,
		"LOCALHOST.:1": false, ":1": true, "0.0.0.0:1": true, "[::]:1": true, "10.0.0.1:1": true, "host:1": true,
		"localhost.example:1": true, "[fe80::1%lo]:1": true,
	} {
		c := config.Default()
		c.GRPC.Addr = addr
		var want []string
		if exposed {
			want = []string{"grpc.addr (" + addr + ")"}
		}
		if diff := cmp.Diff(want, c.Exposed()); diff != "" {
			t.Errorf("%s: %s", addr, diff)
		}
	}
}

// A proxy tells who uses a console that other machines reach, and encrypts for it.
func TestProxyMakesAConsoleReachable(t *testing.T) {
	t.Parallel()
	c, err := config.Load(config.Sources{File: write(t, `
http: {addr: ":9091", public_url: "https://a.example", user_header: X-Forwarded-User, trusted_proxies: [10.0.0.1/32]}
access: {token_file: tokens, admins: ["proxy:anna"]}
`)})
	if err != nil || !c.ExposesConsole() || len(c.Exposed()) > 0 {
		t.Errorf("got %v; exposed are %q", err, c.Exposed())
	}
}

// Rules for tokens need no certificates where a source of tokens is configured.
func TestRulesMayNameTokens(t *testing.T) {
	t.Parallel()
	c, err := config.Load(config.Sources{File: write(t, `
grpc: {callers: ["token:{producer}", "jwt:{producer}"]}
access:
  admins: ["token:ops"]
  viewers: ["jwt:*"]
  token_file: tokens
  oidc_issuer: "https://issuer.example"
  oidc_audience: shop
producers:
  orders: {callers: ["token:shop"]}
`)})
	if err != nil || !c.Identifies() {
		t.Errorf("got %v; identifies %t", err, c.Identifies())
	}
	if c := config.Default(); c.Identifies() || c.ExposesConsole() {
		t.Error("the default configuration knows its callers, or exposes the console")
	}
}
