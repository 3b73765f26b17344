package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/test/must"
)

func TestLoadingNothingGivesTheDefaults(t *testing.T) {
	t.Parallel()
	got, err := config.Load(config.Sources{})
	must.Succeed(t, err)
	if diff := cmp.Diff(config.Default(), got); diff != "" {
		t.Errorf("loading nothing differs from Default (-want +got):\n%s", diff)
	}
}

func TestFlagsWinOverEnvironmentOverFile(t *testing.T) {
	t.Parallel()
	path := write(t, `
confirm:
  after: 1s
  timeout: 1s
  batch: 11
  backoff: [1s, 2s]
send.batch: 22
callbacks:
  allow:
    - "*.orders.svc:9000"
    - 127.0.0.1:*
producers:
  orders-eu.v2: {target: "dns:///orders:9000", trust: true}
submit:
`)
	c, err := config.Load(config.Sources{
		File: path,
		Env: []string{
			"MSGHANDLER_CONFIRM_TIMEOUT=2s", "MSGHANDLER_CONFIRM_BATCH=12", "MSGHANDLER_CALLBACKS_NETWORKS=10.0.0.0/8, fd00::/8",
			"MSGHANDLER_CALLBACKS_MOVED=old:9000=new:9000, dns:///a:1=b:2",
			"MSGHANDLER_HTTP_HOSTS=console.example.com, shop_1",
			"MSGHANDLER_CONFIRM_AFTER=", "OTHER=x", "MSGHANDLER_SERVICE_HOST=10.1.1.1", "MSGHANDLER_PORT=tcp://10.1.1.1:9090",
			"MSGHANDLER_PORT_9090_TCP_ADDR=10.1.1.1", "MSGHANDLER_SERVER=x:1", "MSGHANDLER_CONFIG=y",
			"MSGHANDLER_TLS=true", "MSGHANDLER_TLS_CA=ca.pem", "MSGHANDLER_TLS_CERT=x", "MSGHANDLER_TLS_KEY=x",
			"MSGHANDLER_TLS_NAME=x", "MSGHANDLER_GRPC_TLS_CERT=tls.crt", "MSGHANDLER_GRPC_TLS_KEY=tls.key",
			"MSGHANDLER_GRPC_TLS_CLIENT_CA=ca.pem", "MSGHANDLER_PRODUCERS_STOCK_CALLERS=dns:stock, uri:spiffe://shop/stock",
			"MSGHANDLER_PRODUCERS_STOCK_TLS=true", "MSGHANDLER_CALLBACKS_TOKEN_FILE=tokens",
			"MSGHANDLER_PRODUCERS_STOCK_TOKEN_FILE=stock.tokens",
			"MSGHANDLER_PRODUCERS_ORDERS_EU_V2_TOKEN_FILE=orders.tokens", "MSGHANDLER_GRPC_CALLERS=dns:{producer}.shop",
			"MSGHANDLER_PRODUCERS_ORDERS_EU_V2_TRUST=false", "MSGHANDLER_PRODUCERS_STOCK_TARGET=stock:9000",
		},
		Flags: map[string]string{"confirm.batch": "13", "limits.body": "64KiB"},
	})
	must.Succeed(t, err)
	want := config.Default()
	want.HTTP.Hosts = []string{"console.example.com", "shop_1"}
	want.Confirm.After = time.Second
	want.Confirm.Timeout = 2 * time.Second
	want.Confirm.Batch = 13
	want.Confirm.Backoff = []time.Duration{time.Second, 2 * time.Second}
	want.Send.Batch = 22
	want.Callbacks.Allow = []string{"*.orders.svc:9000", "127.0.0.1:*"}
	want.Callbacks.Networks = []string{"10.0.0.0/8", "fd00::/8"}
	want.Callbacks.Moved = []string{"old:9000=new:9000", "dns:///a:1=b:2"}
	want.Limits.Body = 64 << 10
	want.Producers["orders-eu.v2"] = config.Producer{
		Target:    "dns:///orders:9000",
		Trust:     new(false),
		TokenFile: new("orders.tokens"),
	}
	want.Producers["stock"] = config.Producer{
		Target: "stock:9000", Callers: []string{"dns:stock", "uri:spiffe://shop/stock"}, TLS: new(true),
		TokenFile: new("stock.tokens"),
	}
	want.Callbacks.TokenFile = "tokens"
	want.GRPC.Certificates = config.Certificates{Cert: "tls.crt", Key: "tls.key", CA: "ca.pem"}
	want.GRPC.Callers = []string{"dns:{producer}.shop"}
	want.PrivateFiles = []config.PrivateFile{
		{Key: "callbacks.token_file", Path: "tokens"},
		{Key: "grpc.tls_key", Path: "tls.key"},
		{Key: "producers.orders-eu.v2.token_file", Path: "orders.tokens"},
		{Key: "producers.stock.token_file", Path: "stock.tokens"},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("differs (-want +got):\n%s", diff)
	}
	if c.Trusted("orders-eu.v2") || c.Trusted("stock") {
		t.Error("a producer is trusted that submit.trust does not name")
	}
	if c.Secure("orders-eu.v2") || !c.Secure("stock") || !c.SecuresAny() {
		t.Error("callbacks.tls and producers.NAME.tls do not go together")
	}
	if diff := cmp.Diff([][2]string{{"old:9000", "new:9000"}, {"dns:///a:1", "b:2"}}, c.MovedTargets()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"127.0.0.1", "console.example.com", "shop_1"}, c.HTTP.Names()); diff != "" {
		t.Error(diff)
	}
	public := config.HTTP{Addr: ":9091", PublicURL: "https://ops.example.com:8443"}
	if diff := cmp.Diff([]string{"", "ops.example.com"}, public.Names()); diff != "" {
		t.Error(diff)
	}
	c.Submit.Trust = true
	if c.Trusted("orders-eu.v2") || !c.Trusted("stock") || !c.Trusted("unknown") {
		t.Error("submit.trust and producers.NAME.trust do not go together")
	}
	if diff := cmp.Diff(map[string]string{"orders-eu.v2": "dns:///orders:9000", "stock": "stock:9000"},
		c.Targets()); diff != "" {
		t.Error(diff)
	}
}

// A target of https is called with TLS, without another setting.
func TestTargetOfHTTPSIsSecure(t *testing.T) {
	t.Parallel()
	for file, plain := range map[string]bool{
		"producers: {stock: {target: \"https://stock:8443/msg\", token_file: a}}\n": false,
		"producers: {stock: {target: \"http://stock/msg\", token_file: a}}\n":       true,
	} {
		c, err := config.Load(config.Sources{File: write(t, file)})
		must.Succeed(t, err)
		if got := len(c.TokensInPlain()) > 0; got != plain {
			t.Errorf("%s: tokens in plain %t", file, got)
		}
	}
}

// Messages may name targets of https, so certificates are of use without another setting.
func TestCertificatesNeedNoSecureProducer(t *testing.T) {
	t.Parallel()
	for file, want := range map[string][2]bool{ // whether it secures any, and URLs only
		"callbacks: {tls_ca: ca.pem}\n":                  {true, true},
		"callbacks: {tls_cert: a.crt, tls_key: a.key}\n": {true, true},
		"callbacks: {tls_ca: ca.pem, tls: true}\n":       {true, false},
		"callbacks: {tls: true}\n":                       {true, false},
		"producers: {stock: {tls: true}}\n":              {true, false},
		"{}\n":                                           {false, false},
	} {
		c, err := config.Load(config.Sources{File: write(t, file)})
		must.Succeed(t, err)
		if got := [2]bool{c.SecuresAny(), c.SecuresURLsOnly()}; got != want {
			t.Errorf("%s: got %t, want %t", file, got, want)
		}
	}
}

func TestTokensOfProducers(t *testing.T) {
	t.Parallel()
	c, err := config.Load(config.Sources{File: write(t, `
callbacks: {token_file: shared, tls: true}
producers:
  own: {token_file: own.tokens}
  own-plain: {token_file: own.tokens, tls: false}
  plain: {tls: false}
  none: {token_file: "", tls: false}
  token: {target: "token:9000"}
`)})
	must.Succeed(t, err)
	for producer, want := range map[string]string{
		"own": "own.tokens", "own-plain": "own.tokens", "plain": "shared", "none": "", "token": "shared", "unknown": "shared",
	} {
		if got := c.TokenFile(producer); got != want {
			t.Errorf("%s is shown %q, want %q", producer, got, want)
		}
	}
	want := []string{"callbacks.token_file for producer plain", "producers.own-plain.token_file"}
	if diff := cmp.Diff(want, c.TokensInPlain()); diff != "" {
		t.Error(diff)
	}
	c.Callbacks.TLS = false
	if diff := cmp.Diff(append([]string{"callbacks.token_file"}, append(want, "producers.own.token_file")...),
		c.TokensInPlain()); diff != "" {
		t.Error(diff)
	}
}

// TestErrorsNameKeyAndLine gives each mistake alone and looks for the words of its error. FILE stands for
// the path of the file.
func TestErrorsNameKeyAndLine(t *testing.T) {
	t.Parallel()
	type mistake struct {
		file  string
		env   []string
		flags map[string]string
		want  []string
	}
	inFile := func(file string, want ...string) mistake { return mistake{file: file, want: want} }
	inEnv := func(variable string, want ...string) mistake { return mistake{env: []string{variable}, want: want} }
	byFlag := func(key, value string, want ...string) mistake {
		return mistake{flags: map[string]string{key: value}, want: want}
	}
	tests := map[string]mistake{
		"a move to nowhere": inFile("callbacks: {moved: [\"old:9000\"]}\n", "callbacks.moved", "is not OLD=NEW"),
		"a move to what is no target": inEnv("MSGHANDLER_CALLBACKS_MOVED=a:1=b:2,c:3=d",
			"MSGHANDLER_CALLBACKS_MOVED", `"c:3=d"`, "is not OLD=NEW"),
		"a policy with wrong values": inFile(
			"policy: {targets: [a], exchanges: [a, \"\"], brokers: [b/c], calls_per_second: -1}\n",
			"policy.targets", "is not a glob on host:port", "policy.exchanges", "is no glob on names", "policy.brokers",
			"names no broker", "policy.calls_per_second", "is outside 0 to 1000000"),
		"a policy against other keys": inFile("producers: {a: {brokers: [events], max_body: 2MiB}}\n",
			"producers.a.brokers", "names the broker events, which does not exist", "producers.a.max_body",
			"is more than limits.body (1MiB, the default)"),
		"a certificate without its key": inEnv("MSGHANDLER_GRPC_TLS_CERT=tls.crt",
			"MSGHANDLER_GRPC_TLS_CERT", "set grpc.tls_key"),
		"a key without its certificate": inFile("callbacks: {tls: true, tls_key: tls.key}\n",
			"callbacks.tls_key", "set callbacks.tls_cert"),
		"a certificate of the console without its key": inFile("http: {tls_cert: a.pem}\n",
			"http.tls_cert", "set http.tls_key"),
		"a user header that everybody may send": inFile("http: {user_header: X-Forwarded-User}\n",
			"http.user_header", "set http.trusted_proxies"),
		"proxies that name no person": inFile("http: {trusted_proxies: [10.0.0.0/8]}\n",
			"http.trusted_proxies", "set http.user_header"),
		"a user header that holds credentials": inFile("http: {user_header: authorization, trusted_proxies: [10.0.0.1/32]}\n",
			"http.user_header", "X-Forwarded-User"),
		"a user header with a space": inFile("http: {user_header: X Y}\n", "http.user_header", "X-Forwarded-User"),
		"a client of no issuer": inFile(
			"http: {oidc_client_id: console}\n", "http.oidc_client_id", "set access.oidc_issuer"),
		"a secret of no client": inFile("http: {oidc_client_secret_file: secret}\n",
			"http.oidc_client_secret_file", "set http.oidc_client_id"),
		"a console below a path": inFile("http: {public_url: 'https://a.example/console'}\n",
			"http.public_url", "without a path"),
		"a console without a host": inFile("http: {public_url: 'javascript:alert(1)'}\n", "http.public_url", "https://HOST"),
		"tokens for a console without TLS": inFile("http: {addr: ':9091'}\naccess: {token_file: tokens}\n",
			"http.addr", "set http.tls_cert and http.tls_key", "http.public_url"),
		"a rule for users of no proxy": inFile("access: {admins: ['proxy:anna']}\n", "access.admins", "set http.user_header"),
		"an authority and no certificate": inFile("grpc: {tls_client_ca: ca.pem}\n",
			"grpc.tls_client_ca", "set grpc.tls_cert and grpc.tls_key"),
		"administrators without certificates": inFile("access: {admins: ['dns:ops']}\n",
			"access.admins", "set grpc.tls_client_ca"),
		"callers without certificates": inFile("grpc: {callers: ['dns:ops']}\n", "grpc.callers", "set grpc.tls_client_ca"),
		"an issuer without an audience": inFile("access: {oidc_issuer: https://id.example.com}\n",
			"FILE:1: access.oidc_issuer", "set access.oidc_audience"),
		"an audience that is the console's client": inFile(
			"access: {oidc_issuer: https://id.example.com, oidc_audience: shop}\nhttp: {oidc_client_id: shop}\n",
			"FILE:1: access.oidc_audience", "another name than http.oidc_client_id"),
		"an audience without an issuer": inFile("access: {oidc_audience: msghandler}\n",
			"access.oidc_audience", "set access.oidc_issuer"),
		"authorities without an issuer": inFile("access: {oidc_ca: ca.pem}\n", "access.oidc_ca", "set access.oidc_issuer"),
		"an issuer without TLS": inFile("access: {oidc_issuer: http://id.example.com, oidc_audience: msghandler}\n",
			"access.oidc_issuer", "does not begin with https://"),
		"an issuer with a query": inFile("access: {oidc_issuer: 'https://id.example.com/?a=b', oidc_audience: msghandler}\n",
			"access.oidc_issuer", "is no URL of an issuer"),
		"no claim of names": inFile("access: {oidc_issuer: https://id.example.com, oidc_audience: a, oidc_name_claim: ''}\n",
			"access.oidc_name_claim", "callers have no name"),
		"a claim with a space": inFile("access: {oidc_roles_claim: 'roles '}\n", "access.oidc_roles_claim", "outer space"),
		"admins of an unknown type": inFile("grpc: {callers: ['dsn:*.ops']}\n",
			"grpc.callers", "does not begin with a type", "dns:, uri:, email:"),
		"viewers without a type": inFile("access: {viewers: ['*.ops']}\n",
			"access.viewers", "does not begin with a type", "dns:, uri:"),
		"viewers without certificates": inFile("access: {viewers: ['dns:*.ops']}\n",
			"access.viewers", "set grpc.tls_client_ca"),
		"callers without tokens": inFile("grpc: {callers: ['token:{producer}']}\n", "grpc.callers", "set access.token_file"),
		"callers of a producer without an issuer": inFile("producers:\n  orders: {callers: ['jwt:orders']}\n",
			"producers.orders.callers", "set access.oidc_issuer"),
		"tokens in the clear": inFile("grpc: {addr: ':9090'}\naccess: {token_file: tokens}\n",
			"access.token_file", "needs TLS", "grpc.tls_cert", "grpc.addr (:9090, from FILE:1)"),
		"revocations without an authority": inFile("grpc: {tls_cert: a, tls_key: b, tls_crl: c}\n",
			"grpc.tls_crl", "set grpc.tls_client_ca"),
		"a producer's callers without certificates": inFile("producers: {stock: {callers: ['dns:ops']}}\n",
			"FILE:1: producers.stock.callers", "set grpc.tls_client_ca"),
		"a URL with a password": inFile("producers: {stock: {target: \"https://u:s3cret@stock/x\"}}\n",
			"FILE:1: producers.stock.target", "without a user"),
		"a URL with a query": inFile(
			"callbacks: {moved: [\"old:1=http://new/x?y\"]}\n", "callbacks.moved", "is not OLD=NEW"),
		"a glob that is none": inFile("access: {admins: ['dns:[ops']}\n", "access.admins", "the only wildcard"),
		"a glob that looks like another": inFile("grpc: {callers: ['dns:\u043erders.shop']}\n",
			"grpc.callers", "may look like one of a-z"),
		"unknown key":  inFile("redis:\n  prefix: a\n\nconfrim:\n  after: 1s\n", "FILE:4: confrim is not a known key"),
		"misspelt key": inFile("confirm:\n  afer: 1s\n", "FILE:2: confirm.afer", "did you mean confirm.after?"),
		"key in the wrong section": inFile("send:\n  attempts: 3\n",
			"FILE:2: send.attempts", "did you mean confirm.attempts?"),
		"unknown producer key": inFile("producers:\n  orders:\n    targt: a:1\n",
			"FILE:3: producers.orders.targt", "producers.NAME.target"),
		"unknown variable": inEnv("MSGHANDLER_CONFRIM_AFTER=1s",
			"environment: MSGHANDLER_CONFRIM_AFTER is not a known variable", "did you mean MSGHANDLER_CONFIRM_AFTER?"),
		"unknown flag": byFlag("nonsense", "1", "flag --nonsense: nonsense is not a known key"),
		"duration without unit": inFile("confirm:\n  after: 6\n",
			`FILE:2: confirm.after = "6" is not a duration`, "such as 500ms"),
		"duration out of range": inEnv("MSGHANDLER_CONFIRM_AFTER=25h",
			`environment: MSGHANDLER_CONFIRM_AFTER = "25h" is outside 1ms to 24h`),
		"negative duration": inFile("confirm: {after: -1s}\n", "FILE:1: confirm.after", "is outside"),
		"step of a backoff": inFile("send:\n  backoff: 5s,x\n",
			`FILE:2: send.backoff = "5s,x" holds "x", which is not a duration`),
		"empty backoff":     inFile("send:\n  backoff: []\n", "FILE:2: send.backoff holds no duration"),
		"number":            inFile("confirm:\n  attempts: many\n", "FILE:2", `"many" is not a whole number`),
		"confirm.batch":     inFile("confirm:\n  batch: 501\n", "FILE:2", "is outside 1 to 500"),
		"redis.shards":      byFlag("redis.shards", "-1", "flag --redis.shards", "outside 0 to 1024"),
		"boolean":           inFile("submit:\n  trust: yes\n", "FILE:2", `"yes" is neither true nor false`),
		"size":              inFile("limits:\n  body: 1 Mb\n", "FILE:2", "is not a size"),
		"size out of range": inFile("limits:\n  body: 1GiB\n", "FILE:2", "is outside 1B to 8MiB"),
		"choice":            inFile("delete_business:\n  when: never\n", "FILE:2", "is none of before_publish, after_ack"),
		"cron line":         inFile("confirm:\n  schedule: '@evry 1s'\n", "FILE:2: confirm.schedule", "is not a schedule"),
		"glob without port": inFile("callbacks:\n  allow: [orders]\n", "FILE:2: callbacks.allow", "host:port"),
		"glob with bracket": inFile("callbacks:\n  allow: ['[a:1']\n", "FILE:2", "a bracket is not closed"),
		"CIDR":              inFile("callbacks:\n  networks: 10.0.0.0\n", "FILE:2", "is not a CIDR"),
		"address":           inFile("grpc:\n  addr: localhost\n", "FILE:2: grpc.addr", "is not host:port"),
		"host with a port":  inFile("http:\n  hosts: [a.example:80]\n", "FILE:2: http.hosts", "is no host name"),
		"host with a glob":  inEnv("MSGHANDLER_HTTP_HOSTS=a,*.b", `holds "*.b"`, "is no host name"),
		"port":              inFile("grpc:\n  addr: localhost:99999\n", "FILE:2", "no port number"),
		"reserved exchange": inFile("send:\n  dead_letter_exchange: amq.topic\n", "FILE:2", "amq."),
		"prefix":            inFile("redis:\n  prefix: 'a{b}'\n", "FILE:2", "holds '{'"),
		"scheme of redis":   inFile("redis:\n  url: http://x\n", "FILE:2: redis.url", "redis or rediss"),
		"scheme of amqp":    inFile("amqp:\n  url: [amqp://a, redis://b]\n", "FILE:2: amqp.url", `holds "redis://b"`),
		"slash in a password": inFile("redis:\n  url: redis://u:123/geheim@h:1\n",
			"FILE:2: redis.url", "behind its host", "written as %XX"),
		"hash in a password": inFile("amqp:\n  url: amqp://u:123#geheim@h\n", "FILE:2: amqp.url", "written as %XX"),
		"port of redis": inFile("redis:\n  url: redis://h:65536/0\n",
			`FILE:2: redis.url = "redis://h:65536/0" has a port`, "from 1 to 65535"),
		"database of redis": inEnv("MSGHANDLER_REDIS_URL=redis://h/main",
			"REDIS_URL", "has a database that is no number", "host:port/0"),
		"option of redis": byFlag("redis.url", "redis://h?read_timeout=3s",
			`redis.url = "redis://h?..." has an option`, "there are cluster, client_name,"),
		"value of an option": byFlag("redis.url", "redis://h?pool_size=many",
			"the option pool_size that cannot be; write a number"),
		"port of amqp": inFile("amqp:\n  url: [amqp://a, amqp://b:65536]\n",
			"FILE:2: amqp.url", `holds "amqp://b:65536", which has a port`),
		"hosts of amqp": inFile("amqp:\n  url: [amqp://x, 'amqp://a,b']\n",
			"FILE:2: amqp.url", "names several hosts; give each node its own URL"),
		"two producers of one variable": {
			file: "producers:\n  a-b: {trust: true}\n  a.b: {target: x:1}\n  a_c: {trust: true}\n",
			env:  []string{"MSGHANDLER_PRODUCERS_A_B_TARGET=y:1", "MSGHANDLER_PRODUCERS_A_C_TARGET=z:1"},
			want: []string{
				"MSGHANDLER_PRODUCERS_A_B_TARGET may be producers.a-b.target or producers.a.b.target",
				"set them in the file",
			},
		},
		"target": inFile(
			"producers:\n  o:\n    target: unix:///x\n", "FILE:3: producers.o.target", "dns:///host:port"),
		"producer's name": inFile("producers:\n  o o:\n    target: a:1\n", "FILE:3", "names no producer"),
		"producer's trust": inFile(
			"producers:\n  o:\n    trust: 1\n", "FILE:3: producers.o.trust", "neither true nor false"),
		"no value":            inFile("confirm:\n  after:\n", "FILE:2: confirm.after has no value"),
		"second with a login": inFile("amqp:\n  url: [amqp://a, redis://u:p@b]\n", "holds as number 2", "is not a URL"),
		"value for section":   inFile("confirm: 5s\n", "FILE:1: confirm holds a value where keys are wanted"),
		"section for value":   inFile("confirm:\n  after:\n    x: 1\n", "confirm.after takes a value, not further keys"),
		"list for one value":  inFile("confirm:\n  after: [1s, 2s]\n", "FILE:2", "takes one value, not a list"),
		"list in a list":      inFile("callbacks:\n  allow: [[a]]\n", "FILE:2", "inside a list"),
		"key twice": inFile(
			"redis:\n  prefix: a\n  prefix: b\n", "FILE:3: redis.prefix stands twice, first in line 2"),
		"key dotted twice":    inFile("redis:\n  prefix: a\nredis.prefix: b\n", "FILE:3: redis.prefix stands twice"),
		"no mapping":          inFile("- a\n", "FILE:1", "where keys are wanted"),
		"second document":     inFile("redis.prefix: a\n---\nx: y\n", "second document"),
		"no text in line 3":   inFile("log:\n  level: info\n  format: \x00\n", "FILE:3 is not YAML"),
		"a reversed value":    inFile("log:\n  level: info # \u202egubed\n", "FILE:2 holds a character that is invisible"),
		"an invisible letter": inFile("log:\n  level: in\u200bfo\n", "FILE:2 holds a character"),
		"no callers of a producer": inFile("producers:\n  payroll:\n    callers: []\n",
			"FILE:3: producers.payroll.callers is an empty list"),
		"no exchanges of a producer": byFlag("producers.payroll.exchanges", "",
			"flag --producers.payroll.exchanges", "is an empty list"),
		"no exchanges of dead letters": inFile("dead_letters:\n  payroll:\n    exchanges: []\n",
			"FILE:3: dead_letters.payroll.exchanges is an empty list"),
		"an invisible letter in a flag": byFlag("producers.orders.exchanges", "sh\u200bop",
			"flag --producers.orders.exchanges", "holds a character that is invisible"),
		"a reversed variable": inEnv("MSGHANDLER_POLICY_EXCHANGES=shop\u202ex", "environment", "holds a character"),
		"an escaped letter": inFile("policy:\n  exchanges: [\"sh\\u200bop\"]\n",
			"FILE:2: policy.exchanges holds a character"),
		"a forged line": inFile(
			"\"log.level\\nlevel=INFO msg=forged\": info\n", `log.level\nlevel=INFO msg=forged is not`),
		"a forged variable":  inEnv("MSGHANDLER_A\nlevel=INFO=1", `MSGHANDLER_A\nlevel is not a known variable`),
		"no such anchor":     inFile("log:\n  level: *nowhere\n", "FILE:2 is not YAML", "nowhere"),
		"bad second part":    inFile("log: {}\n---\na: [\n", "is not YAML", "line"),
		"keys of themselves": inFile("producers: &p\n  a: *p\n", "FILE:2: producers.a is an alias of keys"),
		"no YAML":            inFile("a: [\n", "is not YAML", "line"),
		"confirm.lease": inFile("confirm:\n  lease: 7s\n",
			"FILE:2: confirm.lease", "twice confirm.timeout (3s, the default)", "more than 7s"),
		"confirm.timeout": inEnv("MSGHANDLER_CONFIRM_TIMEOUT=20s",
			"confirm.lease", "confirm.timeout (20s, from environment)"),
		"confirm.give_up_after": inFile("confirm:\n  give_up_after: 6s\n",
			"FILE:2: confirm.give_up_after", "must exceed confirm.after (6s"),
		"send.lease": inFile("send:\n  lease: 10s\n", "FILE:2: send.lease", "at least 15s"),
		"a lease for two answers": inFile("send:\n  lease: 20s\n  dead_letter_exchange: dead\n",
			"FILE:2: send.lease", "send.confirm_timeout", "by 15s", "at least 25s"),
		"same address": byFlag("http.addr", ":9090", "flag --http.addr", "is the address of grpc.addr"),
		"localhost": inFile("callbacks:\n  allow: ['orders.svc:9000', 'LocalHost:*']\n",
			"FILE:2: callbacks.allow", "names LocalHost:*", "leaves out loopback and private addresses by default",
			"write 127.0.0.1:*,"),
		"localhost outside networks": inFile("callbacks:\n  allow: ['orders.localhost.:9000']\n  networks: [10.0.0.0/8]\n",
			"FILE:2: callbacks.allow", "callbacks.networks (10.0.0.0/8, from FILE:3) holds no loopback", "127.0.0.1:9000"),
		"embedded Redis":  inFile("redis:\n  url: 'embedded:'\n", "FILE:2: redis.url", "redis://"),
		"embedded broker": inFile("amqp:\n  url: 'embedded:'\n", "FILE:2: amqp.url", "amqp"),
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sources := config.Sources{Env: tt.env, Flags: tt.flags}
			if tt.file != "" {
				sources.File = write(t, tt.file)
			}
			_, err := config.Load(sources)
			if err == nil {
				t.Fatal("was taken")
			}
			for _, want := range tt.want {
				if want = strings.ReplaceAll(want, "FILE", sources.File); !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestAllProblemsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := config.Load(config.Sources{
		File:  write(t, "confirm:\n  after: soon\n  afer: 1s\nx: 1\n"),
		Env:   []string{"MSGHANDLER_X=1", "MSGHANDLER_SEND_BATCH=0"},
		Flags: map[string]string{"log.level": "loud"},
	})
	var problems *config.Error
	if !errors.As(err, &problems) {
		t.Fatalf("got %v", err)
	}
	if len(problems.Problems) != 6 || strings.Count(err.Error(), "\n") != 6 {
		t.Errorf("want 6 problems, one a line, got:\n%v", err)
	}
}

func TestNoErrorShowsAPassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"http://user:geheim@host/", "redis://user:geheim@ho st:1/", "redis://:geheim@h:port/0", "user:geheim@host",
		"amqp://u:geheim@a,redis://u:geheim@b:1", "redis://u:geheim@h@h:x", "rediss://:ge%zzheim@h:1",
		"amqp://u:geheim,geheim@h", "redis://u:1/geheim@h", "amqps://u:1?geheim@h", "amqp://u:1#geheim@h",
	} {
		for _, key := range []string{"redis.url", "amqp.url"} {
			_, err := config.Load(config.Sources{Flags: map[string]string{key: url}})
			if err == nil {
				t.Errorf("%s=%s was taken", key, url)
			} else if strings.Contains(err.Error(), "heim") {
				t.Errorf("the error shows the password: %v", err)
			}
		}
	}
}

func TestErrorsHideSecretsInURLs(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]string{
		"MSGHANDLER_EVENTS_WEBHOOK_TOKEN=geheim tok":                    "WEBHOOK_TOKEN holds what cannot stand in a header",
		"MSGHANDLER_EVENTS_WEBHOOK=hooks.example.com/services/T/geheim": "WEBHOOK is no URL",
		"MSGHANDLER_EVENTS_WEBHOOK=ftp://hooks.example.com/geheim":      "WEBHOOK is no URL",
		"MSGHANDLER_REDIS_URL=geheim":                                   "REDIS_URL is not a URL",
		"MSGHANDLER_REDIS_URL=redis://u:geheim@h:1#":                    `REDIS_URL = "redis://u:xxxxx@h:1#" has`,
		"MSGHANDLER_AMQP_URL=amqps://u:geheim@h#":                       `AMQP_URL = "amqps://u:xxxxx@h#" has`,
		"MSGHANDLER_REDIS_URL=redis://h/x?sentinel_password=geheim":     `REDIS_URL = "redis://h/x?..." has a database`,
		"MSGHANDLER_AMQP_URL=amqp://h,geheim": "AMQP_URL holds as number 2, counted by commas, " +
			"what is not a URL",
		"MSGHANDLER_AMQP_URL=amqp://u:geheim,geheim@h": "AMQP_URL holds as number 1, counted by commas, " +
			"what cannot",
		"MSGHANDLER_AMQP_URL=amqp://u:p,amqp://h:geheim": "AMQP_URL = \"amqp://...,amqp://...\" holds",
	} {
		_, err := config.Load(config.Sources{Env: []string{variable}})
		if err == nil || strings.Contains(err.Error(), "geheim") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", variable, err)
		}
	}
	_, err := config.Load(config.Sources{File: write(t, "events:\n  webhook_token: [geheim, geheim]\n")})
	if err == nil || strings.Contains(err.Error(), "geheim") {
		t.Errorf("a list: got %v", err)
	}
}

func TestURLsOfEveryForm(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://127.0.0.1:6379/0", "rediss://user:p%40ss@host:6380/1", "redis://a:1,b:2,c:3", "redis://:secret@a:1,b:2/0",
		"redis://a:26379,b:26379/0?master=main", "redis://[::1]:6379",
	} {
		if _, err := config.Load(config.Sources{Flags: map[string]string{"redis.url": url}}); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{
		"amqp://guest:guest@127.0.0.1:5672/", "amqps://a/vhost", "amqp://a,amqp://b",
	} {
		if _, err := config.Load(config.Sources{Flags: map[string]string{"amqp.url": url}}); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestAMissingFileIsAnError(t *testing.T) {
	t.Parallel()
	_, err := config.Load(config.Sources{File: filepath.Join(t.TempDir(), "none.yaml")})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := config.Load(config.Sources{File: write(t, "# nothing set\n")}); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]config.Size{
		"1MiB": 1 << 20, "64KiB": 65536, "64 kB": 64000, "7": 7, "7B": 7,
		"0": 0,
	} {
		if got, err := config.ParseSize(in); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "x", "-1", "1.5MiB", "99999999999GiB", "MiB"} {
		if _, err := config.ParseSize(in); err == nil {
			t.Errorf("%q was taken", in)
		}
	}
	if s := config.Size(1 << 20).String(); s != "1MiB" {
		t.Error(s)
	}
	if s := config.Size(1001).String(); s != "1001B" {
		t.Error(s)
	}
}

func rewrite(t *testing.T, path, content string) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, []byte(content), 0o600))
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "msghandler.yaml")
	rewrite(t, path, content)
	return path
}
