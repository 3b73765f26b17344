package config

import "time"

// GRPC is the API for producers and operators.
type GRPC struct {
	Addr         string       `key:"addr" default:"127.0.0.1:9090" check:"address"`
	Reflection   bool         `key:"reflection"`
	Certificates Certificates `key:"tls_" but:"ca=client_ca"`
	// CRL is a file with revocation lists for client certificates; empty: none.
	CRL     string   `key:"tls_crl"`
	Callers []string `key:"callers" check:"caller" reload:"yes"`
}

// Certificates are PEM files: our certificate and its key, and the authorities of the other side's. Empty: none.
type Certificates struct {
	Cert string `key:"cert"`
	Key  string `key:"key"`
	CA   string `key:"ca"`
}

// HTTP is the server of the console.
type HTTP struct {
	Addr  string   `key:"addr" default:"127.0.0.1:9091" check:"address"`
	Hosts []string `key:"hosts" check:"host"`
	// PublicURL is where browsers open the console; empty: at the name that they used.
	PublicURL string `key:"public_url" check:"public URL"`
	// Certificates have no CA: clients show tokens.
	Certificates Certificates `key:"tls_" but:"ca="`
	ReadOnly     bool         `key:"read_only"`
	// Bodies says whether anybody sees the bodies and headers of messages.
	Bodies bool `key:"bodies" default:"true"`
	// SessionKeyFile holds the secret of sessions; empty: random at each start.
	SessionKeyFile string `key:"session_key_file"`
	// OIDCClientID is the console's name at the issuer of Access; empty: there is no login by the issuer.
	OIDCClientID         string   `key:"oidc_client_id" check:"header value"`
	OIDCClientSecretFile string   `key:"oidc_client_secret_file"`
	OIDCScopes           []string `key:"oidc_scopes" default:"openid, profile, email" check:"header value" some:"yes"`
	// UserHeader names the header with the user's name that TrustedProxies set.
	UserHeader     string   `key:"user_header" check:"header"`
	TrustedProxies []string `key:"trusted_proxies" check:"CIDR"`
}

// Access says who callers are, and what they may do.
type Access struct {
	// Anonymous allows everything to callers that show nothing.
	Anonymous bool `key:"anonymous"`
	// Viewers, Readers, Operators and Admins are globs on typed names.
	Viewers   []string `key:"viewers" check:"typed name" reload:"yes"`
	Readers   []string `key:"readers" check:"typed name" reload:"yes"`
	Operators []string `key:"operators" check:"typed name" reload:"yes"`
	Admins    []string `key:"admins" check:"typed name" reload:"yes"`
	TokenFile string   `key:"token_file"`
	OIDC      OIDC     `key:"oidc_"`
}

// OIDC is the issuer of JSON Web Tokens. See oidc.Config.
type OIDC struct {
	Issuer         string `key:"issuer" check:"issuer"`
	Audience       string `key:"audience" check:"claim"`
	CA             string `key:"ca"`
	NameClaim      string `key:"name_claim" default:"sub" check:"claim"`
	RolesClaim     string `key:"roles_claim" default:"roles" check:"claim"`
	ProducersClaim string `key:"producers_claim" check:"claim"`
}

// Redis is the store.
type Redis struct {
	URL         string `key:"url" default:"redis://127.0.0.1:6379/0" check:"redis" secret:"yes" reload:"yes"`
	Prefix      string `key:"prefix" default:"msghandler" check:"prefix"`
	Shards      int    `key:"shards" default:"0" bounds:"0 1024"`
	MinReplicas int    `key:"min_replicas" default:"0" bounds:"0 10"`
	AllowUnsafe bool   `key:"allow_unsafe"`
}

// AMQP is the broker. The default is RabbitMQ's own.
type AMQP struct {
	URLs []string `key:"url" default:"amqp://guest:guest@127.0.0.1:5672/" check:"amqp" secret:"yes" some:"yes"`
}

// Callbacks is how producers are called.
type Callbacks struct {
	Allow        []string     `key:"allow" check:"targets" reload:"yes"`
	Networks     []string     `key:"networks" check:"CIDR" reload:"yes"`
	Moved        []string     `key:"moved" check:"moved"`
	TLS          bool         `key:"tls"`
	Certificates Certificates `key:"tls_"`
	TokenFile    string       `key:"token_file"`
}

// Confirm is the confirm side.
type Confirm struct {
	Schedule string          `key:"schedule" default:"@every 1s" check:"schedule"`
	After    time.Duration   `key:"after" default:"6s" bounds:"1ms 24h"`
	Backoff  []time.Duration `key:"backoff" default:"5s,10s,30s,1m,2m,5m" bounds:"1ms 24h" some:"yes"`
	Attempts int             `key:"attempts" default:"15" bounds:"1 10000"`
	// GiveUpAfter is the time limit for a verdict, counted from SendHalfMessage; 0: none.
	GiveUpAfter time.Duration `key:"give_up_after" default:"0s" bounds:"0s 8760h"`
	Timeout     time.Duration `key:"timeout" default:"3s" bounds:"10ms 5m"`
	Batch       int           `key:"batch" default:"200" bounds:"1 500"`
	Lease       time.Duration `key:"lease" default:"30s" bounds:"1s 1h"`
}

// Send is the send side.
type Send struct {
	Schedule           string          `key:"schedule" default:"@every 1s" check:"schedule"`
	Backoff            []time.Duration `key:"backoff" default:"5s,30s,2m" bounds:"1ms 24h" some:"yes"`
	Batch              int             `key:"batch" default:"500" bounds:"1 5000"`
	Lease              time.Duration   `key:"lease" default:"30s" bounds:"1s 1h"`
	ConfirmTimeout     time.Duration   `key:"confirm_timeout" default:"10s" bounds:"100ms 10m"`
	DeadLetterExchange string          `key:"dead_letter_exchange" check:"exchange"`
}

// Submit says whether a Submit is a verdict.
type Submit struct {
	Trust bool `key:"trust"`
}

// The values of delete_business.when.
const (
	BeforePublish = "before_publish"
	AfterAck      = "after_ack"
)

// DeleteBusiness is when markers are deleted: BeforePublish or AfterAck.
type DeleteBusiness struct {
	When string `key:"when" default:"before_publish" oneof:"before_publish,after_ack"`
}

// Done says how long receipts of finished messages are kept.
type Done struct {
	Retention time.Duration `key:"retention" default:"10m" bounds:"1s 720h"`
}

// Archive says how long, and how many, finished messages are kept with their content.
type Archive struct {
	Retention   time.Duration `key:"retention" default:"0" bounds:"0 8760h"`
	MaxMessages int           `key:"max_messages" default:"100000" bounds:"1 100000000"`
	MaxBody     Size          `key:"max_body" default:"64KiB" bounds:"0 8MiB"`
}

// Limits bounds the messages of all producers.
type Limits struct {
	Body       Size `key:"body" default:"1MiB" bounds:"1B 8MiB"`
	Unfinished int  `key:"unfinished" default:"1000000" bounds:"1 1000000000" reload:"yes"`
	HeldPerKey int  `key:"held_per_key" default:"1000" bounds:"1 100000"`
}

// Ordering is about messages with an ordering key.
type Ordering struct {
	// Patience is how long a committed message waits for the verdict about one before it until the final question.
	Patience time.Duration `key:"patience" default:"1m" bounds:"1s 24h"`
}

// Events says which events people get, and where.
type Events struct {
	Webhook          string   `key:"webhook" check:"webhook" secret:"yes"`
	WebhookToken     string   `key:"webhook_token" check:"header value" secret:"yes"`
	Queues           []string `key:"queues" check:"queue"`
	QueueMessages    int      `key:"queue_messages" default:"1000" bounds:"1 1000000000"`
	DeadLetterQueues []string `key:"dead_letter_queues" check:"queue"`
}

// Shutdown is the end of the process.
type Shutdown struct {
	Grace time.Duration `key:"grace" default:"20s" bounds:"1ms 1h"`
}

// Log configures the log on standard error.
type Log struct {
	Level    string `key:"level" default:"info" oneof:"debug,info,warn,error"`
	Format   string `key:"format" default:"text" oneof:"text,json"`
	Language string `key:"language" default:"en" oneof:"en,zh"`
}

// Broker is a broker beside the one of AMQP.
type Broker struct {
	// URL says by its scheme which kind of broker it is.
	URL string `key:"url" check:"broker" secret:"yes"`
	// DeadLetterExchange is where DEAD messages for the broker are copied; empty: nowhere.
	DeadLetterExchange string `key:"dead_letter_exchange" check:"exchange"`
}

// Producer holds the settings of a single producer.
type Producer struct {
	// Target is the callback target used when its messages name none; empty is none.
	Target string `key:"target" check:"target"`
	// Trust, TLS and TokenFile hold unless nil. The empty TokenFile means no token. Callers hold unless empty.
	Trust     *bool    `key:"trust" as:"submit.trust"`
	Callers   []string `key:"callers" as:"grpc.callers"`
	TLS       *bool    `key:"tls" as:"callbacks.tls"`
	TokenFile *string  `key:"token_file" as:"callbacks.token_file"`
	// The others are the policy of the producer. They hold unless empty, or nil.
	Targets            []string `key:"targets" as:"policy.targets"`
	Brokers            []string `key:"brokers" as:"policy.brokers"`
	Exchanges          []string `key:"exchanges" as:"policy.exchanges"`
	RoutingKeys        []string `key:"routing_keys" as:"policy.routing_keys"`
	MaxBody            *Size    `key:"max_body" as:"limits.body" reload:"yes"`
	MaxUnfinished      *int     `key:"max_unfinished" as:"limits.unfinished"`
	MaxUnfinishedBytes *Size    `key:"max_unfinished_bytes" as:"policy.max_unfinished_bytes"`
	CallsPerSecond     *int     `key:"calls_per_second" as:"policy.calls_per_second"`
}
