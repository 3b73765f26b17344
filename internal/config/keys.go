package config

import (
	"slices"
	"strings"
	"time"
)

// Key is one key of the configuration.
type Key struct {
	// Name is dotted, such as confirm.after.
	Name string
	// Default is written as a user would; empty is none.
	Default string
	// Meaning is one or two sentences for the reference and for --help.
	Meaning string
	// Secret says that the value may hold a password, which is never shown.
	Secret bool

	value value
}

// Env is the key's environment variable.
func (k Key) Env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
}

// Section is the part of the name before the first dot.
func (k Key) Section() string {
	section, _, _ := strings.Cut(k.Name, ".")
	return section
}

// Kind says in a word or two what the value is, such as "duration".
func (k Key) Kind() string { return k.value.kind() }

// Allowed says which values are taken; empty when the kind says it all.
func (k Key) Allowed() string { return k.value.allowed() }

// Bool says whether the value is true or false.
func (k Key) Bool() bool {
	_, is := k.value.(*boolValue)
	return is
}

// List says whether the key takes several values.
func (k Key) List() bool {
	switch k.value.(type) {
	case *listValue, *durationsValue:
		return true
	}
	return false
}

// Keys lists every key, in the order of the reference. Those of single producers are not among them.
func Keys() []Key {
	var c Config
	return c.keys()
}

// keys is the table of all keys, bound to the fields of c.
func (c *Config) keys() []Key {
	return slices.Concat(
		c.GRPC.keys(), c.HTTP.keys(), c.Redis.keys(), c.AMQP.keys(), c.Callbacks.keys(), c.Confirm.keys(), c.Send.keys(),
		c.Submit.keys(), c.DeleteBusiness.keys(), c.Done.keys(), c.Sweep.keys(), c.Limits.keys(), c.Events.keys(),
		c.Shutdown.keys(),
		c.Log.keys(),
	)
}

func (g *GRPC) keys() []Key {
	return []Key{
		{
			Name: "grpc.addr", Default: "127.0.0.1:9090", value: text(&g.Addr, checkAddr),
			Meaning: "Where the gRPC API listens, as host:port. Producers and the admin commands connect here.",
		},
		{
			Name: "grpc.reflection", Default: "false", value: flag(&g.Reflection),
			Meaning: "Serve gRPC reflection, so that tools such as grpcurl can list the API.",
		},
		{
			Name: "grpc.connection_age", Default: "1h", value: duration(&g.ConnectionAge, time.Second, 30*day),
			Meaning: "When a connection is told to end, so that clients spread over coordinators that were added. Its calls end in peace, " +
				"within a day; clients of gRPC connect anew by themselves, and no call fails. Jitter changes it by a tenth.",
		},
		{
			Name: "grpc.connection_idle", Default: "10m", value: duration(&g.ConnectionIdle, time.Second, 30*day),
			Meaning: "When a connection without a call is told to end. The Go SDK always has one, a watch of the coordinator's health.",
		},
		{
			Name: "grpc.tls_cert", value: text(&g.Certificates.Cert, checkFile),
			Meaning: "The certificate of the gRPC API, a PEM file, followed by those between it and its authority. With it and " +
				"grpc.tls_key the API takes TLS only. All files of certificates are read anew when they change.",
		},
		{
			Name: "grpc.tls_key", value: text(&g.Certificates.Key, checkFile),
			Meaning: "The private key of grpc.tls_cert, a PEM file.",
		},
		{
			Name: "grpc.tls_client_ca", value: text(&g.Certificates.CA, checkFile),
			Meaning: "The certificates of the authorities that every client's certificate must come from, a PEM file. None: clients " +
				"need no certificate.",
		},
		{
			Name: "grpc.admins", value: list(&g.Admins, 0, checkGlob),
			Meaning: "Whose certificates may use the admin API: globs on the names in them (DNS names, URIs, e-mail addresses, and the " +
				"common name), such as *.ops.example.com. None: whoever can connect.",
		},
		{
			Name: "grpc.callers", value: list(&g.Callers, 0, checkGlob),
			Meaning: "Whose certificates may call as a producer: globs as in grpc.admins, in which {producer} stands for its name, such as " +
				"{producer}.shop.svc. None: whoever can connect. producers.<name>.callers sets them for one producer.",
		},
	}
}

func (h *HTTP) keys() []Key {
	return []Key{
		{
			Name: "http.addr", Default: "127.0.0.1:9091", value: text(&h.Addr, checkAddr),
			Meaning: "Where the console, /metrics, /healthz and /readyz listen, as host:port.",
		},
		{
			Name: "http.hosts", value: list(&h.Hosts, 0, checkHost),
			Meaning: "Names by which browsers ask for the console, such as console.example.com, without ports. IP addresses, " +
				"localhost and the host of http.addr need none; under any other name the console is not shown.",
		},
		{
			Name: "http.read_only", Default: "false", value: flag(&h.ReadOnly),
			Meaning: "Let nobody retry or discard messages from the console, which has no login of its own.",
		},
	}
}

func (r *Redis) keys() []Key {
	return []Key{
		{
			Name: "redis.url", Default: "redis://127.0.0.1:6379/0", Secret: true, value: text(&r.URL, checkRedisURL),
			Meaning: "The Redis that holds the messages: redis:// or rediss://; several addresses (host:port,host:port) for " +
				"Redis Cluster; ?master=NAME for Sentinel; embedded: for one in this process, which is not durable.",
		},
		{
			Name: "redis.prefix", Default: "msghandler", value: text(&r.Prefix, checkPrefix),
			Meaning: "What every key in Redis begins with. Coordinators that share it share the messages.",
		},
		{
			Name: "redis.shards", Default: "0", value: whole(&r.Shards, 0, 1024),
			Meaning: "How many parts the data is spread over, for Redis Cluster. It is stored with the data; another number " +
				"stops the start. 0 is the number that the data have; new data are in 16 parts on a Cluster and in one elsewhere.",
		},
		{
			Name: "redis.min_replicas", Default: "0", value: whole(&r.MinReplicas, 0, 10),
			Meaning: "How many replicas must have a half message (WAIT) before the producer is told OK. It narrows the window " +
				"in which a failover loses a message; it does not close it.",
		},
		{
			Name: "redis.allow_unsafe", Default: "false", value: flag(&r.AllowUnsafe),
			Meaning: "Start although Redis is set up in a way that breaks the promises, such as an eviction policy. The " +
				"findings are logged all the same.",
		},
	}
}

func (a *AMQP) keys() []Key {
	return []Key{
		{
			Name: "amqp.url", Default: "amqp://guest:guest@127.0.0.1:5672/", Secret: true, value: addresses(&a.URLs, checkAMQPURL),
			Meaning: "The RabbitMQ that messages are published to: amqp:// or amqps://; several for a cluster, tried in turn; " +
				"embedded: for a broker in this process, which is not durable.",
		},
		{
			Name: "amqp.window", Default: "1000", value: whole(&a.Window, 1, 10000),
			Meaning: "How many publishings may wait for the broker's acknowledgement at once. As many may be published twice " +
				"when the broker dies.",
		},
	}
}

func (c *Callbacks) keys() []Key {
	return []Key{
		{
			Name: "callbacks.allow", value: list(&c.Allow, 0, checkAllow),
			Meaning: "Which callback targets may be dialled: globs on host:port, such as *.orders.svc:9000. With none, no " +
				"producer can send messages. A host of localhost is refused unless callbacks.networks holds loopback.",
		},
		{
			Name: "callbacks.networks", value: list(&c.Networks, 0, checkCIDR),
			Meaning: "CIDRs that an address must lie in to be connected to, whatever name led there. None means all but " +
				"loopback, link-local, multicast and unspecified. A literal address that callbacks.allow names needs no more.",
		},
		{
			Name: "callbacks.moved", value: list(&c.Moved, 0, checkMoved),
			Meaning: "Producers that have moved, as OLD=NEW: messages that name the callback target OLD, also those stored long ago, are asked " +
				"about at NEW, which callbacks.allow must name. Such as old.svc:9000=new.svc:9000.",
		},
		{
			Name: "callbacks.parallel", Default: "4", value: whole(&c.Parallel, 1, 64),
			Meaning: "How many Confirm calls to one producer may be under way at once.",
		},
		{
			Name: "callbacks.queue", Default: "2000", value: whole(&c.Queue, 1, 100000),
			Meaning: "How many messages of one producer may wait in memory for a Confirm call. Past it they wait in Redis.",
		},
		{
			Name: "callbacks.tls", Default: "false", value: flag(&c.TLS),
			Meaning: "Call producers with TLS; their certificates must be for the host of the callback target. producers.<name>.tls sets " +
				"it for one producer.",
		},
		{
			Name: "callbacks.tls_ca", value: text(&c.Certificates.CA, checkFile),
			Meaning: "The certificates of the authorities that producers' certificates must come from, a PEM file. None: those of the system.",
		},
		{
			Name: "callbacks.tls_cert", value: text(&c.Certificates.Cert, checkFile),
			Meaning: "The certificate that producers are shown where they ask for one, a PEM file.",
		},
		{
			Name: "callbacks.tls_key", value: text(&c.Certificates.Key, checkFile),
			Meaning: "The private key of callbacks.tls_cert, a PEM file.",
		},
		{
			Name: "callbacks.token_file", value: text(&c.TokenFile, checkFile),
			Meaning: "The file with the token that shows producers that a coordinator calls, sent as Authorization: Bearer: its first line that is not " +
				"empty and does not begin with #. It is read again when it changes. producers.<name>.token_file sets it for one producer.",
		},
	}
}

func (c *Confirm) keys() []Key {
	return []Key{
		{
			Name: "confirm.schedule", Default: "@every 1s", value: text(&c.Schedule, checkSchedule),
			Meaning: "When the confirm loop looks for silent messages: a cron line (UTC) or @every DURATION.",
		},
		{
			Name: "confirm.after", Default: "6s", value: duration(&c.After, time.Millisecond, day),
			Meaning: "How long a message may be silent before its producer is asked. A request may set its own.",
		},
		{
			Name: "confirm.backoff", Default: "5s,10s,30s,1m,2m,5m", value: durations(&c.Backoff, day),
			Meaning: "How long until a producer that answered UNKNOWN is asked again; the last one repeats. Jitter takes up " +
				"to half of it away.",
		},
		{
			Name: "confirm.attempts", Default: "15", value: whole(&c.Attempts, 1, 10000),
			Meaning: "How many UNKNOWN answers are taken before the final question, after which a message is ABANDONED.",
		},
		{
			Name: "confirm.timeout", Default: "3s", value: duration(&c.Timeout, 10*time.Millisecond, 5*time.Minute),
			Meaning: "How long one call to a producer may take.",
		},
		{
			Name: "confirm.batch", Default: "200", value: whole(&c.Batch, 1, 500),
			Meaning: "How many messages one Confirm call asks about at most.",
		},
		{
			Name: "confirm.lease", Default: "30s", value: duration(&c.Lease, time.Second, time.Hour),
			Meaning: "How long a coordinator owns a message that it confirms. When it dies, another goes on after that. " +
				"Must exceed twice confirm.timeout plus one second.",
		},
	}
}

func (s *Send) keys() []Key {
	return []Key{
		{
			Name: "send.schedule", Default: "@every 1s", value: text(&s.Schedule, checkSchedule),
			Meaning: "When the send loop looks for messages that are due: a cron line (UTC) or @every DURATION.",
		},
		{
			Name: "send.backoff", Default: "5s,30s,2m", value: durations(&s.Backoff, day),
			Meaning: "How long until a message that the broker refused is published again. After the last one it is DEAD.",
		},
		{
			Name: "send.batch", Default: "500", value: whole(&s.Batch, 1, 5000),
			Meaning: "How many messages are published and settled together at most.",
		},
		{
			Name: "send.parallel", Default: "4", value: whole(&s.Parallel, 1, 64),
			Meaning: "How many batches may be on their way to the broker at once.",
		},
		{
			Name: "send.queue", Default: "5000", value: whole(&s.Queue, 1, 100000),
			Meaning: "How many messages may wait in memory to be published. Past it they wait in Redis.",
		},
		{
			Name: "send.lease", Default: "30s", value: duration(&s.Lease, time.Second, time.Hour),
			Meaning: "How long a coordinator owns a message that it publishes. Must exceed send.confirm_timeout by five seconds.",
		},
		{
			Name: "send.confirm_timeout", Default: "10s", value: duration(&s.ConfirmTimeout, 100*time.Millisecond, 10*time.Minute),
			Meaning: "How long the broker may take to acknowledge before the outcome counts as unknown.",
		},
		{
			Name: "send.dead_letter_exchange", value: text(&s.DeadLetterExchange, checkExchange),
			Meaning: "The exchange that DEAD messages are copied to, with reason, attempts and origin as headers. Empty: none.",
		},
	}
}

func (s *Submit) keys() []Key {
	return []Key{{
		Name: "submit.trust", Default: "false", value: flag(&s.Trust),
		Meaning: "Take a Submit itself as the verdict COMMITTED, without asking. producers.<name>.trust sets it for one producer.",
	}}
}

func (d *DeleteBusiness) keys() []Key {
	return []Key{{
		Name: "delete_business.when", Default: BeforePublish, value: oneOf(&d.When, BeforePublish, AfterAck),
		Meaning: "When producers are told to drop their markers. after_ack is for a Redis that may forget its last second: " +
			"the marker then outlives the publishing, and the message stands as ACKNOWLEDGED until it is gone.",
	}}
}

func (d *Done) keys() []Key {
	return []Key{{
		Name: "done.retention", Default: "10m", value: duration(&d.Retention, time.Second, 30*day),
		Meaning: "How long a repeated call still learns that a message is DONE or ROLLED_BACK.",
	}}
}

func (s *Sweep) keys() []Key {
	return []Key{{
		Name: "sweep.schedule", Default: "@every 10s", value: text(&s.Schedule, checkSchedule),
		Meaning: "When a slice of the data is checked for records and indexes that do not match, and repaired.",
	}}
}

func (e *Events) keys() []Key {
	return []Key{
		{
			Name: "events.webhook", Secret: true, value: text(&e.Webhook, checkWebhook),
			Meaning: "Where events are posted as JSON, as http:// or https://: messages that became ABANDONED or DEAD, " +
				"breakers, trouble with Redis, backlogs, producers that are refused, coordinators that were killed. None: they are only logged and counted.",
		},
		{
			Name: "events.webhook_token", Secret: true, value: text(&e.WebhookToken, checkToken),
			Meaning: "Sent to the webhook as Authorization: Bearer.",
		},
		{
			Name: "events.gather", Default: "1s", value: duration(&e.Gather, 10*time.Millisecond, time.Hour),
			Meaning: "How long events are gathered before they are posted. Those that are alike are posted as one.",
		},
		{
			Name: "events.sendable", Default: "1000", value: whole(&e.Sendable, 1, 1_000_000_000),
			Meaning: "From how many SENDABLE messages on that wait for longer than events.sendable_age there is a backlog. " +
				"Those that wait for their delay or their next try are not counted.",
		},
		{
			Name: "events.sendable_age", Default: "1m", value: duration(&e.SendableAge, time.Second, 30*day),
			Meaning: "How old such messages are, since SendHalfMessage.",
		},
		{
			Name: "events.queues", value: list(&e.Queues, 0, checkQueue),
			Meaning: "Queues of the broker whose messages are counted, on a connection of its own.",
		},
		{
			Name: "events.queue_messages", Default: "1000", value: whole(&e.QueueMessages, 1, 1_000_000_000),
			Meaning: "From how many messages on such a queue has a backlog.",
		},
		{
			Name: "events.dead_letter_queues", value: list(&e.DeadLetterQueues, 0, checkQueue),
			Meaning: "Queues of the broker in which a single message is a backlog.",
		},
	}
}

func (s *Shutdown) keys() []Key {
	return []Key{{
		Name: "shutdown.grace", Default: "20s", value: duration(&s.Grace, time.Millisecond, time.Hour),
		Meaning: "How long a stop may take: work in hand is finished or handed back within it.",
	}}
}

func (l *Log) keys() []Key {
	return []Key{
		{
			Name: "log.level", Default: "info", value: oneOf(&l.Level, "debug", "info", "warn", "error"),
			Meaning: "The least important lines that are logged.",
		},
		{
			Name: "log.format", Default: "text", value: oneOf(&l.Format, "text", "json"),
			Meaning: "How log lines on standard error are written.",
		},
	}
}

const day = 24 * time.Hour
