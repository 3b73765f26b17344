// Package address_test compares addresses with how the clients of Redis and RabbitMQ read them.
package address_test

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/ground/address"
)

// reads demands that each address is read as it is wanted.
func reads[A any](t *testing.T, parse func(string) (A, error), wants map[string]A) {
	t.Helper()
	for text, want := range wants {
		got, err := parse(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, diff)
		}
	}
}

// refuses demands an error for each address, with a text that says what to do. No error quotes a secret.
func refuses[A any](t *testing.T, parse func(string) (A, error), wants map[string]string) {
	t.Helper()
	for text, want := range wants {
		got, err := parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestAddressesOfRedis(t *testing.T) {
	t.Parallel()
	reads(t, address.ParseRedis, map[string]address.Redis{
		"redis://h":                    {Hosts: []string{"h:6379"}},
		"redis://h/":                   {Hosts: []string{"h:6379"}},
		"redis://h:1/3":                {Hosts: []string{"h:1"}, Database: 3},
		"redis://h:65535?db=3":         {Hosts: []string{"h:65535"}, Database: 3},
		"redis://[::1]":                {Hosts: []string{"[::1]:6379"}},
		"redis://[fe80::1%25eth0]:7":   {Hosts: []string{"[fe80::1%eth0]:7"}},
		"rediss://:p%2F%40@h":          {Hosts: []string{"h:6379"}, Password: "p/@", TLS: true},
		"rediss://u:p@h?skip_verify=1": {Hosts: []string{"h:6379"}, User: "u", Password: "p", TLS: true, Unverified: true},
		"redis://u@h":                  {Hosts: []string{"h:6379"}, User: "u"},
		"redis://a:1, b,[::1]:3":       {Hosts: []string{"a:1", "b:6379", "[::1]:3"}, Cluster: true},
		"redis://a?cluster=true":       {Hosts: []string{"a:6379"}, Cluster: true},
		"redis://a,b/0?cluster=true":   {Hosts: []string{"a:6379", "b:6379"}, Cluster: true},
		"redis://:p@a,b:1/2?master=main&sentinel_username=s&sentinel_password=%26": {
			Hosts: []string{"a:26379", "b:1"}, Password: "p", Database: 2, Master: "main", SentinelUser: "s",
			SentinelPassword: "&",
		},
		"redis://a?master=main&cluster=false": {Hosts: []string{"a:26379"}, Master: "main"},
		"redis://h?client_name=x&pool_size=7&conn_max_idle_time=90&conn_max_lifetime=1h": {
			Hosts: []string{"h:6379"}, ClientName: "x", PoolSize: 7, IdleTime: 90 * time.Second, LifeTime: time.Hour,
		},
	})
}

func TestAddressesOfNATS(t *testing.T) {
	t.Parallel()
	reads(t, address.ParseNATS, map[string]address.NATS{
		"nats://h":                  {Hosts: []string{"h:4222"}},
		"nats://h:1/":               {Hosts: []string{"h:1"}},
		"nats://u:p%2F%40@a:1, b":   {Hosts: []string{"a:1", "b:4222"}, User: "u", Password: "p/@"},
		"nats://h?token=a%26b":      {Hosts: []string{"h:4222"}, Token: "a&b"},
		"nats://h?credsfile=%2Fc":   {Hosts: []string{"h:4222"}, CredentialsFile: "/c"},
		"nats://h?inbox_prefix=_IN": {Hosts: []string{"h:4222"}, InboxPrefix: "_IN"},
		"tls://[::1]":               {Hosts: []string{"[::1]:4222"}, TLS: true},
		"nats://h?tls=true&skip_verify=1": {
			Hosts: []string{"h:4222"}, TLS: true, Unverified: true,
		},
		"tls://h?cacertfile=ca&certfile=c&keyfile=k": {
			Hosts: []string{"h:4222"}, TLS: true, CAFile: "ca", CertFile: "c", KeyFile: "k",
		},
	})
}

func TestMalformedAddressesOfNATSAreRefused(t *testing.T) {
	t.Parallel()
	refuses(t, address.ParseNATS, map[string]string{
		"geheim":                       "is not a URL of the scheme nats or tls; write nats://",
		"amqp://geheim@h":              "is not a URL of the scheme nats or tls; write nats://",
		"nats://":                      "has a host that is none; write host or host:port",
		"nats://a,,b":                  "has a host that is none; write host or host:port",
		"nats://h:0":                   "has a port that is no number from 1 to 65535; write host:port",
		"nats://u:p/geheim@h":          "has an @ behind its host",
		"nats://h/geheim":              "has a path behind its hosts",
		"nats://geheim@h":              "has a user without a password",
		"nats://u:geheim@h?token=x":    "has more than one login",
		"nats://h?credsfile=a&token=b": "has more than one login",
		"nats://h?geheim=x":            "has an option behind its ? that there is not; there are cacertfile,",
		"nats://h?tls=geheim":          "has a value of the option tls that cannot be; write true or false",
		"nats://h?skip_verify=true":    "has options for TLS without TLS",
		"nats://h?cacertfile=geheim":   "has options for TLS without TLS",
		"tls://h?certfile=geheim":      "has one of certfile and keyfile",
		"nats://h?inbox_prefix=a.%3E":  "has an inbox_prefix that is no subject",
	})
}

// TestMalformedAddressesAreRefused: each error says what to do, and quotes nothing.
func TestMalformedAddressesAreRefused(t *testing.T) {
	t.Parallel()
	refuses(t, address.ParseRedis, map[string]string{
		"":                                "is not a URL of the scheme redis or rediss; write redis://",
		"127.0.0.1:6379":                  "is not a URL of the scheme redis or rediss; write redis://",
		"unix:///run/redis.sock":          "is not a URL of the scheme redis or rediss; write redis://",
		"redis://":                        "has a host that is none; write host or host:port",
		"redis://a,,b":                    "has a host that is none; write host or host:port",
		"redis://a,":                      "has a host that is none; write host or host:port",
		"redis://:1":                      "has a host that is none; write host or host:port",
		"redis://a b":                     "cannot be read as a URL; write redis://",
		"redis://a,b c":                   "has a host that is none; write host or host:port",
		"redis://::1":                     "IPv6 address in brackets",
		"redis://a,fe80::1:6379":          "IPv6 address in brackets",
		"redis://h:65536":                 "has a port that is no number from 1 to 65535; write host:port",
		"redis://h:0":                     "has a port that is no number from 1 to 65535; write host:port",
		"redis://h:":                      "has a port that is no number from 1 to 65535; write host:port",
		"redis://a,h:99999":               "has a port that is no number from 1 to 65535; write host:port",
		"redis://h:geheim":                "cannot be read as a URL; write redis://",
		"redis://h/geheim":                "has a database that is no number from 0 on; write host:port/0",
		"redis://h/-1":                    "has a database that is no number from 0 on; write host:port/0",
		"redis://h/1/2":                   "has a database that is no number from 0 on; write host:port/0",
		"redis://h/1?db=2":                "no ?db= beside it",
		"redis://h?db=geheim":             "has a value of the option db that cannot be; write a number",
		"redis://h?geheim=geheim":         "has an option behind its ? that there is not; there are cluster, client_name,",
		"redis://h?read_timeout=3s":       "has an option behind its ? that there is not; there are cluster, client_name,",
		"redis://h?%zz":                   "has options behind its ? that cannot be read",
		"redis://h?db=1&db=2":             "has the option db twice; leave one",
		"redis://h?master=":               "has the option master without a value; give one",
		"redis://h?cluster=geheim":        "has a value of the option cluster that cannot be; write true or false",
		"redis://h?pool_size=-1":          "the option pool_size that cannot be; write a number from 0 to 10000",
		"redis://h?pool_size=10001":       "the option pool_size that cannot be; write a number from 0 to 10000",
		"redis://h?conn_max_lifetime=0":   "has a value of the option conn_max_lifetime that cannot be; write a duration",
		"redis://h?conn_max_idle_time=x":  "has a value of the option conn_max_idle_time that cannot be; write a duration",
		"redis://h?skip_verify=true":      "skip_verify, which is for rediss:// only",
		"redis://a,b/1":                   "asks a Cluster for a database other than 0",
		"redis://a,b?master=m&cluster=1":  "asks for a Cluster and for a master of Sentinels",
		"redis://a?sentinel_password=g":   "names no master that they know; add ?master=NAME",
		"redis://u:geheim/@h":             "special characters in a user or a password are written as %XX",
		"redis://h#geheim":                "has an @ behind its host or a #",
		"redis://u:ge%zzheim@h":           "cannot be read as a URL",
		"redis://h?sentinel_password=a@b": "has an @ behind its host or a #",
	})
	refuses(t, address.ParseAMQP, map[string]string{
		"":                              "is not a URL of the scheme amqp or amqps; write amqp://",
		"geheim":                        "is not a URL of the scheme amqp or amqps; write amqp://",
		"redis://h":                     "is not a URL of the scheme amqp or amqps; write amqp://",
		"amqp://":                       "has a host that is none",
		"amqp:///vhost":                 "has a host that is none",
		"amqp://h:65536/":               "has a port that is no number from 1 to 65535",
		"amqp://a,b":                    "names several hosts; give each node its own URL",
		"amqp://h/a vhost":              "holds a space; write it as %20",
		"amqp://h?heartbeat=geheim":     "has a value of the option heartbeat that cannot be; write a number",
		"amqp://h?channel_max=65536":    "has a value of the option channel_max that cannot be; write a number",
		"amqp://h?connection_timeout=s": "has a value of the option connection_timeout that cannot be; write a number",
		"amqp://h?auth_mechanism=none":  "write plain, amqplain or external",
		"amqp://h?%zz":                  "has options behind its ? that cannot be read",
		"amqp://u:geheim#@h":            "special characters in a user or a password are written as %XX",
	})
}

func TestAddressesOfRabbitMQ(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"amqp://guest:guest@127.0.0.1:5672/": "127.0.0.1:5672", "amqp://h": "h:5672", "amqps://h/v": "h:5671",
		"amqp://[::1]/%2f?heartbeat=10&auth_mechanism=plain": "[::1]:5672", "amqp://u:p%2F@h:1?unknown=x": "h:1",
	} {
		got, err := address.ParseAMQP(text)
		if diff := cmp.Diff(address.AMQP{URL: text, Host: want}, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, diff)
		}
	}
}

func TestAddressesOfCoordinators(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"127.0.0.1:9090", ":9090", "localhost:1", "[::1]:65535", "[fe80::1%eth0]:9090", "a:1,b:2", "a:1, [::1]:2",
		"dns:///a:1",
		"dns://10.0.0.1/a:1", "passthrough:///a", "xds:///a", "xds://authority/a", "unix:/run/a@b.sock", "unix:///run/a.sock",
		"unix-abstract:a", "kubernetes:///a:grpc", "ü:1",
		"dns:a:1", "consul://consul:8500/msghandler", "zookeeper:///a",
	} {
		if err := address.CheckCoordinators(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	refuses(t, func(text string) (string, error) { return text, address.CheckCoordinators(text) }, map[string]string{
		"":                      "such as 127.0.0.1:9090, or a target of gRPC, such as dns:///msghandler:9090",
		"geheim":                "is not a coordinator's address; write host:port",
		"h:":                    "is not a coordinator's address; write host:port",
		"h:0":                   "is not a coordinator's address; write host:port",
		"h:65536":               "is not a coordinator's address; write host:port",
		"h:geheim":              "is not a coordinator's address; write host:port",
		"::1":                   "is not a coordinator's address; write host:port",
		"::1:9090":              "is not a coordinator's address; write host:port",
		"a:1,":                  "is not a coordinator's address; write host:port",
		"a:1,h:99999":           "is not a coordinator's address; write host:port",
		"a:1,dns:///b:2":        "names a scheme in a list; write host:port,host:port",
		"dns:///a":              "is not a coordinator's address; write host:port",
		"dns:///a:b":            "is not a coordinator's address; write host:port",
		"http://h:9090":         "is not a coordinator's address; write host:port",
		"http://h:9090/geheim":  "is not a coordinator's address; write host:port",
		"h:9090/geheim":         "is not a coordinator's address; write host:port",
		"http://u:geheim@h:1":   "has an @, and a coordinator takes no login; write host:port",
		"u:geheim@h:1":          "has an @, and a coordinator takes no login; write host:port",
		"amqps:///u:geheim@h":   "has an @, and a coordinator takes no login; write host:port",
		"a:1,u:geheim@h:1":      "has an @, and a coordinator takes no login; write host:port",
		"redis://:geheim@h/0,b": "names a scheme in a list; write host:port,host:port",
	})
}

func TestShownHidesSecrets(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"redis://127.0.0.1:6379/0":              "redis://127.0.0.1:6379/0",
		"redis://a:1,b:2?cluster=true":          "redis://a:1,b:2?...",
		"rediss://:geheim@h/3":                  "rediss://:xxxxx@h/3",
		"redis://u:geheim@h/?sentinel_password": "redis://u:xxxxx@h/?...",
		"redis://geheim@h":                      "redis://xxxxx@h",
		"redis://u:gehe@im@h":                   "redis://u:xxxxx@h",
		"amqp://u:geheim@h:65536/v":             "amqp://u:xxxxx@h:65536/v",
		"amqp://u:ge/heim@h":                    "amqp://...",
		"amqp://u:ge?heim@h":                    "amqp://...",
		"amqp://u:ge#heim@h":                    "amqp://...",
		"redis://h?sentinel_password=geheim@im": "redis://...",
		"redis://u:geheim@h:1#":                 "redis://u:xxxxx@h:1#",
		"redis://h/3#geheim":                    "redis://h/3#...",
		"redis://:geheim":                       "redis://...",
		"redis://h:geheim/0":                    "redis://...",
		"redis://":                              "redis://...",
		"nats://u:geheim@a:1,b?token=geheim":    "nats://u:xxxxx@a:1,b?...",
		"tls://geheim@h":                        "tls://xxxxx@h",
		"geheim":                                "",
		"user:geheim@host":                      "",
		"geheim://h":                            "",
		"":                                      "",
	} {
		if got := address.Shown(text); got != want {
			t.Errorf("%s is shown as %q, not %q", text, got, want)
		}
	}
}

// FuzzRedis: the driver reads an accepted address of a single server with the same result.
func FuzzRedis(f *testing.F) {
	for _, text := range []string{
		"redis://u:p@h:1/2", "rediss://h?skip_verify=true", "redis://[::1]?db=3", "redis://h?pool_size=3&client_name=a%20b",
		"redis://h?conn_max_idle_time=3", "redis://a,b", "redis://h?master=m", "redis://%41", "redis://ü:1", "redis://h//",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := address.ParseRedis(text)
		if err != nil || got.Cluster || got.Master != "" || strings.Contains(text, "cluster=") ||
			strings.Contains(text, "master=") || strings.Contains(text, "sentinel_") || strings.Contains(text, "%") {
			return
		}
		want, err := redis.ParseURL(text)
		if err != nil {
			t.Fatalf("%q is taken, and the driver says %v", text, err)
		}
		if got.Hosts[0] != want.Addr || got.User != want.Username || got.Password != want.Password ||
			got.Database != want.DB ||
			got.TLS != (want.TLSConfig != nil) || got.PoolSize != want.PoolSize || got.ClientName != want.ClientName ||
			got.IdleTime != want.ConnMaxIdleTime || got.LifeTime != want.ConnMaxLifetime {
			t.Errorf("%q is %+v, and for the driver %+v", text, got, want)
		}
	})
}

// FuzzAMQP: the driver accepts an accepted address, and dials the same host.
func FuzzAMQP(f *testing.F) {
	for _, text := range []string{
		"amqp://u:p@h:1/v", "amqps://h", "amqp://[::1]/%2f", "amqp://h?heartbeat=1", "amqp://h?auth_mechanism=External",
		"amqp://a,b",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := address.ParseAMQP(text)
		if err != nil {
			return
		}
		want, err := amqp.ParseURI(text)
		if err != nil {
			t.Fatalf("%q is taken, and the driver says %v", text, err)
		}
		if host := joined(want); got.Host != host {
			t.Errorf("%q is at %s, and for the driver at %s", text, got.Host, host)
		}
	})
}

// FuzzSecret: no error and no shown address holds a password, for every other fault of the address.
func FuzzSecret(f *testing.F) {
	for _, url := range [][3]string{
		{"redis://", "", "host:6379"},
		{"redis://user", "@", "host:x/0"},
		{"rediss://u", ",", "a,b:1,c/0?cluster=true"},
		{"redis://u", "/", "host"},
		{"amqp://u", "?", "host"},
		{"amqps://u", "#", "host/x?db=y"},
		{"redis://u", "%zz", "host?master=m&sentinel_password=a&db=1"},
		{"redis://h?sentinel_password=", "", "host"},
		{"http://u", "", "host"},
	} {
		f.Add(url[0], url[1], url[2])
	}
	// The first part can be taken for a port when a slash follows.
	const first, second = "4711", "Pa55w0rd"
	f.Fuzz(func(t *testing.T, before, within, after string) {
		if strings.Contains(before, "@") {
			return // the password ends at the earlier @
		}
		text := before + ":" + first + within + second + "@" + after
		lines := []string{address.Shown(text)}
		if _, err := address.ParseRedis(text); err != nil {
			lines = append(lines, err.Error())
		}
		if _, err := address.ParseAMQP(text); err != nil {
			lines = append(lines, err.Error())
		}
		if err := address.CheckCoordinators(text); err != nil {
			lines = append(lines, err.Error())
		}
		for _, line := range lines {
			if strings.Contains(line, first) || strings.Contains(line, second) {
				t.Errorf("before %q, within %q, after %q: %s", before, within, after, line)
			}
		}
	})
}

func joined(uri amqp.URI) string { return net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port)) }
