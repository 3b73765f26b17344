// Package config holds every key of the configuration with its default, meaning and check.
//
// Load merges the sources: flags win over the environment, the environment over the file, the file over the defaults.
// The error lists all problems at once, each with its key, its source and the action.
package config

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Config is the whole configuration. Keys holds the meaning and the default of each field.
type Config struct {
	GRPC           GRPC
	HTTP           HTTP
	Access         Access
	Redis          Redis
	AMQP           AMQP
	Callbacks      Callbacks
	Confirm        Confirm
	Send           Send
	Submit         Submit
	DeleteBusiness DeleteBusiness
	Done           Done
	Archive        Archive
	Limits         Limits
	Policy         Policy
	Events         Events
	Shutdown       Shutdown
	Log            Log
	// Producers holds the settings of single producers, by their names.
	Producers map[string]Producer
	// Brokers holds the brokers beside the one of AMQP, by their names.
	Brokers map[string]Broker
	// Outbox holds the databases whose outbox of plain SQL is relayed, by their names.
	Outbox map[string]Outbox
	// DeadLetters holds the queues of consumers' dead letters that the console shows, by their names.
	DeadLetters map[string]DeadLetters
	// PrivateFiles are the files with secrets that this configuration is made of, or names.
	PrivateFiles []PrivateFile
}

// GRPC is the API for producers and operators.
type GRPC struct {
	Addr         string
	Reflection   bool
	Certificates Certificates
	// CRL is a file with revocation lists for client certificates; empty: none.
	CRL     string
	Callers []string
}

// Certificates are PEM files: our certificate and its key, and the authorities of the other side's. Empty: none.
type Certificates struct {
	Cert string
	Key  string
	CA   string
}

// HTTP is the server of the console.
type HTTP struct {
	Addr string
	// Certificates have no CA: clients show tokens.
	Certificates Certificates
	Hosts        []string
	// PublicURL is where browsers open the console; empty: at the name that they used.
	PublicURL string
	ReadOnly  bool
	// Bodies says whether anybody sees the bodies and headers of messages.
	Bodies bool
	// SessionKeyFile holds the secret of sessions; empty: random at each start.
	SessionKeyFile string
	// OIDCClientID is the console's name at the issuer of Access; empty: there is no login by the issuer.
	OIDCClientID, OIDCClientSecretFile string
	OIDCScopes                         []string
	// UserHeader names the header with the user's name that TrustedProxies set.
	UserHeader     string
	TrustedProxies []string
}

// Redis is the store.
type Redis struct {
	URL         string
	Prefix      string
	Shards      int
	MinReplicas int
	AllowUnsafe bool
}

// AMQP is the broker.
type AMQP struct {
	URLs []string
}

// Broker is a broker beside the one of AMQP.
type Broker struct {
	// URL says by its scheme which kind of broker it is.
	URL string
	// DeadLetterExchange is where DEAD messages for the broker are copied; empty: nowhere.
	DeadLetterExchange string
}

// Callbacks is how producers are called.
type Callbacks struct {
	Allow        []string
	Networks     []string
	Moved        []string
	TLS          bool
	Certificates Certificates
	TokenFile    string
}

// Confirm is the confirm side.
type Confirm struct {
	Schedule string
	After    time.Duration
	Backoff  []time.Duration
	Attempts int
	// GiveUpAfter is the time limit for a verdict, counted from SendHalfMessage; 0: none.
	GiveUpAfter time.Duration
	Timeout     time.Duration
	Batch       int
	Lease       time.Duration
}

// Send is the send side.
type Send struct {
	Schedule           string
	Backoff            []time.Duration
	Batch              int
	Lease              time.Duration
	ConfirmTimeout     time.Duration
	DeadLetterExchange string
}

// Submit says whether a Submit is a verdict.
type Submit struct {
	Trust bool
}

// The values of delete_business.when.
const (
	BeforePublish = "before_publish"
	AfterAck      = "after_ack"
)

// DeleteBusiness is when markers are deleted: BeforePublish or AfterAck.
type DeleteBusiness struct {
	When string
}

// Done says how long receipts of finished messages are kept.
type Done struct {
	Retention time.Duration
}

// Archive says how long, and how many, finished messages are kept with their content.
type Archive struct {
	Retention   time.Duration
	MaxMessages int
	MaxBody     Size
}

// Events says which events people get, and where.
type Events struct {
	Webhook          string
	WebhookToken     string
	Queues           []string
	QueueMessages    int
	DeadLetterQueues []string
}

// Shutdown is the end of the process.
type Shutdown struct {
	Grace time.Duration
}

// Log configures the log on standard error.
type Log struct {
	Level    string
	Format   string
	Language string
}

// Producer holds the settings of a single producer.
type Producer struct {
	// Target is the callback target used when its messages name none; empty is none.
	Target string
	// Trust overrides submit.trust unless nil.
	Trust *bool
	// Callers overrides grpc.callers unless empty.
	Callers []string
	// TLS overrides callbacks.tls unless nil.
	TLS *bool
	// TokenFile overrides callbacks.token_file unless nil. The empty text means no token.
	TokenFile *string
	// Targets, Brokers, Exchanges and RoutingKeys override those of Policy unless empty.
	Targets, Brokers, Exchanges, RoutingKeys []string
	// MaxBody and MaxUnfinished override limits.body and limits.unfinished unless nil.
	MaxBody       *Size
	MaxUnfinished *int
	// The others override those of Policy unless nil.
	MaxUnfinishedBytes *Size
	CallsPerSecond     *int
}

// Trusted says whether a Submit of the producer is the verdict.
func (c *Config) Trusted(producer string) bool {
	if p := c.Producers[producer]; p.Trust != nil {
		return *p.Trust
	}
	return c.Submit.Trust
}

// Secure says whether the producer is called with TLS.
func (c *Config) Secure(producer string) bool {
	if p := c.Producers[producer]; p.TLS != nil {
		return *p.TLS
	}
	return c.Callbacks.TLS
}

// SecuresAny says whether any call to a producer may need the settings of TLS. Messages may name targets of https, so
// certificates are enough.
func (c *Config) SecuresAny() bool {
	return c.secures() || c.Callbacks.Certificates != (Certificates{})
}

// SecuresURLsOnly says that there are certificates for callbacks, and only targets of https are called with TLS.
func (c *Config) SecuresURLsOnly() bool { return c.SecuresAny() && !c.secures() }

// secures says whether a setting has producers called with TLS, independent of their targets.
func (c *Config) secures() bool {
	if c.Callbacks.TLS {
		return true
	}
	for _, p := range c.Producers {
		if p.TLS != nil && *p.TLS {
			return true
		}
	}
	return false
}

func isHTTPS(target string) bool { return strings.HasPrefix(target, "https://") }

// TokenFile names the file with the token for calls to a producer; empty: none.
func (c *Config) TokenFile(producer string) string {
	if p := c.Producers[producer]; p.TokenFile != nil {
		return *p.TokenFile
	}
	return c.Callbacks.TokenFile
}

// TokensInPlain names the keys of tokens sent on connections without TLS, sorted.
func (c *Config) TokensInPlain() (keys []string) {
	if c.Callbacks.TokenFile != "" && !c.Callbacks.TLS {
		keys = append(keys, "callbacks.token_file")
	}
	for name, p := range c.Producers {
		switch {
		case c.Secure(name) || isHTTPS(p.Target) || c.TokenFile(name) == "":
		case p.TokenFile != nil:
			keys = append(keys, producersPrefix+name+".token_file")
		case p.TLS != nil:
			keys = append(keys, "callbacks.token_file for producer "+name)
		}
	}
	slices.Sort(keys)
	return keys
}

// BrokerNames are the names of the brokers beside the one of AMQP, sorted.
func (c *Config) BrokerNames() []string { return slices.Sorted(maps.Keys(c.Brokers)) }

// PublicOnly says that producers are known by name and only public addresses are called. A glob on addresses names its
// addresses itself.
func (c *Callbacks) PublicOnly() bool {
	return len(c.Networks) == 0 && slices.ContainsFunc(c.Allow, func(glob string) bool {
		host := glob[:strings.LastIndexByte(glob, ':')] // checked by Load
		return !strings.HasPrefix(host, "[") && (host[0] == '*' || strings.Trim(host, "0123456789.*") != "")
	})
}

// Listens are the configured addresses of the listeners, as far as they name a port.
func (c *Config) Listens() (addrs []netip.AddrPort) {
	for _, addr := range []string{c.GRPC.Addr, c.HTTP.Addr} {
		host, port, _ := net.SplitHostPort(addr) // checked by Load
		if isLocalhost(host) {
			host = "127.0.0.1"
		}
		listens, err := netip.ParseAddrPort(net.JoinHostPort(cmp.Or(host, "::"), port))
		if err == nil && listens.Port() != 0 {
			addrs = append(addrs, listens)
		}
	}
	return addrs
}

// Names are the host names under which a browser may open the console, beside localhost.
func (h HTTP) Names() []string {
	host, _, _ := net.SplitHostPort(h.Addr) // checked by Load
	names := append([]string{host}, h.Hosts...)
	if public, err := url.Parse(h.PublicURL); err == nil && public.Host != "" {
		names = append(names, public.Hostname())
	}
	return names
}

// Targets gives the configured callback targets by producer.
func (c *Config) Targets() map[string]string {
	targets := map[string]string{}
	for name, p := range c.Producers {
		if p.Target != "" {
			targets[name] = p.Target
		}
	}
	return targets
}

// MovedTargets returns pairs of callback targets: the former and the current target.
func (c *Config) MovedTargets() (moved [][2]string) {
	for _, pair := range c.Callbacks.Moved {
		from, to, _ := strings.Cut(pair, "=") // checked by Load
		moved = append(moved, [2]string{from, to})
	}
	return moved
}

// Default returns the configuration with nothing set.
func Default() Config {
	var c Config
	for _, k := range c.keys() {
		if err := k.value.set(split(k)); err != nil {
			panic("the default of " + k.Name + " is wrong: " + err.Error())
		}
	}
	c.Producers = map[string]Producer{}
	c.Brokers = map[string]Broker{}
	c.Outbox = map[string]Outbox{}
	c.DeadLetters = map[string]DeadLetters{}
	return c
}

// split returns the default as the values for set.
func split(k Key) []string {
	if !k.List() {
		return []string{k.Default}
	}
	return splitList(k.Default)
}

// Find returns the key with a name.
func Find(name string) (Key, bool) {
	keys := Keys()
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == name })
	if i < 0 {
		return Key{}, false
	}
	return keys[i], true
}
