// Package config is every key of the configuration: its default, its meaning, its check.
//
// Load puts the sources together: flags win over the environment, which wins over the file, which wins over the
// defaults. All that is wrong is told at once, before anything is opened, with the key, where the value came from and
// what to do.
package config

import (
	"net"
	"slices"
	"strings"
	"time"
)

// Config is the whole configuration. Keys says what each field means and which default it has.
type Config struct {
	GRPC           GRPC
	HTTP           HTTP
	Redis          Redis
	AMQP           AMQP
	Callbacks      Callbacks
	Confirm        Confirm
	Send           Send
	Submit         Submit
	DeleteBusiness DeleteBusiness
	Done           Done
	Sweep          Sweep
	Limits         Limits
	Events         Events
	Shutdown       Shutdown
	Log            Log
	// Producers holds what is set for single producers, by their names.
	Producers map[string]Producer
}

// GRPC is the door for producers and operators.
type GRPC struct {
	Addr       string
	Reflection bool
	// ConnectionAge is when a connection is told to end, and ConnectionIdle when one without a call is.
	ConnectionAge, ConnectionIdle time.Duration
	Certificates                  Certificates
	Admins                        []string
	Callers                       []string
}

// Certificates are PEM files: our certificate and its key, and the authorities of the other side's. Empty: none.
type Certificates struct {
	Cert string
	Key  string
	CA   string
}

// HTTP is the door of the console.
type HTTP struct {
	Addr     string
	Hosts    []string
	ReadOnly bool
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
	URLs   []string
	Window int
}

// Callbacks is how producers are called.
type Callbacks struct {
	Allow        []string
	Networks     []string
	Moved        []string
	Parallel     int
	Queue        int
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
	Timeout  time.Duration
	Batch    int
	Lease    time.Duration
}

// Send is the send side.
type Send struct {
	Schedule           string
	Backoff            []time.Duration
	Batch              int
	Parallel           int
	Queue              int
	Lease              time.Duration
	ConfirmTimeout     time.Duration
	DeadLetterExchange string
}

// Submit is what a Submit is worth.
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

// Done is what is kept of finished messages.
type Done struct {
	Retention time.Duration
}

// Sweep is the repair of records and indexes that do not match.
type Sweep struct {
	Schedule string
}

// Events is what people are told of, and where.
type Events struct {
	Webhook          string
	WebhookToken     string
	Gather           time.Duration
	Sendable         int
	SendableAge      time.Duration
	Queues           []string
	QueueMessages    int
	DeadLetterQueues []string
}

// Shutdown is the end of the process.
type Shutdown struct {
	Grace time.Duration
}

// Log is what is written to standard error.
type Log struct {
	Level  string
	Format string
}

// Producer is what is set for one producer.
type Producer struct {
	// Target is the callback target used when its messages name none; empty is none.
	Target string
	// Trust overrides submit.trust; nil leaves it.
	Trust *bool
	// Callers overrides grpc.callers; none leaves it.
	Callers []string
	// TLS overrides callbacks.tls; nil leaves it.
	TLS *bool
	// TokenFile overrides callbacks.token_file; nil leaves it, and the empty text is no token.
	TokenFile *string
}

// Trusted says whether a Submit of that producer is taken as the verdict.
func (c *Config) Trusted(producer string) bool {
	if p := c.Producers[producer]; p.Trust != nil {
		return *p.Trust
	}
	return c.Submit.Trust
}

// Callers are the names in certificates by which clients may call as that producer; none: whoever can connect may.
func (c *Config) Callers(producer string) []string {
	if own := c.Producers[producer].Callers; len(own) > 0 {
		return own
	}
	callers := make([]string, len(c.GRPC.Callers))
	for i, glob := range c.GRPC.Callers {
		callers[i] = strings.ReplaceAll(glob, "{producer}", globEscaper.Replace(producer))
	}
	return callers
}

// NamesCallers says whether anybody is named in grpc.callers or for a producer.
func (c *Config) NamesCallers() bool {
	if len(c.GRPC.Callers) > 0 {
		return true
	}
	for _, p := range c.Producers {
		if len(p.Callers) > 0 {
			return true
		}
	}
	return false
}

// Secure says whether that producer is called with TLS.
func (c *Config) Secure(producer string) bool {
	if p := c.Producers[producer]; p.TLS != nil {
		return *p.TLS
	}
	return c.Callbacks.TLS
}

// SecuresAny says whether any producer is called with TLS.
func (c *Config) SecuresAny() bool {
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

// TokenFile names the file with the token that a producer is shown; empty: none.
func (c *Config) TokenFile(producer string) string {
	if p := c.Producers[producer]; p.TokenFile != nil {
		return *p.TokenFile
	}
	return c.Callbacks.TokenFile
}

// TokensInPlain names the keys of tokens that are shown on connections without TLS, sorted.
func (c *Config) TokensInPlain() (keys []string) {
	if c.Callbacks.TokenFile != "" && !c.Callbacks.TLS {
		keys = append(keys, "callbacks.token_file")
	}
	for name, p := range c.Producers {
		switch {
		case c.Secure(name) || c.TokenFile(name) == "":
		case p.TokenFile != nil:
			keys = append(keys, producersPrefix+name+".token_file")
		case p.TLS != nil:
			keys = append(keys, "callbacks.token_file for producer "+name)
		}
	}
	slices.Sort(keys)
	return keys
}

// Names are those by which a browser may ask for the console, beside localhost.
func (h HTTP) Names() []string {
	host, _, _ := net.SplitHostPort(h.Addr) // it was checked
	return append([]string{host}, h.Hosts...)
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

// MovedTargets gives the callback targets that are called somewhere else, and where.
func (c *Config) MovedTargets() (moved [][2]string) {
	for _, pair := range c.Callbacks.Moved {
		from, to, _ := strings.Cut(pair, "=") // it was checked
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
	return c
}

// split gives the default as the values that set takes.
func split(k Key) []string {
	if !k.List() {
		return []string{k.Default}
	}
	return splitList(k.Default)
}

// Find returns the key of that name.
func Find(name string) (Key, bool) {
	keys := Keys()
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == name })
	if i < 0 {
		return Key{}, false
	}
	return keys[i], true
}
