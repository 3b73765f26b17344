package house

import (
	"slices"
	"strings"
	"testing"
)

// The ground: every room may import the ground.
var (
	ground = []string{
		"proto/...", "internal/access", "internal/audit", "internal/halfmsg", "internal/loop", "internal/escape",
		"internal/connlimit", "internal/loglimit", "internal/pacing", "internal/peers", "internal/peerstats",
		"internal/ground/address", "internal/ground/backoff",
		"internal/ground/batch", "internal/ground/build", "internal/ground/deadletter", "internal/ground/event",
		"internal/ground/files",
		"internal/ground/lifecycle", "internal/ground/logtext", "internal/ground/publish", "internal/ground/sqldb",
		"internal/ground/typedname", "internal/ground/versions",
	}
	loops      = []string{"internal/confirmloop", "internal/sendloop"}
	publishers = []string{"broker/rabbitmq", "broker/kafka", "broker/nats"}
	sdks       = []string{"producer/...", "consumer/...", "broker/...", "redis/...", "prometheus/..."}
	middle     = []string{
		"internal/store/redis/...", "internal/store/storetest", "internal/callback", "internal/server",
		"internal/console/...", "internal/events", "internal/config/...",
	}
)

// rooms says which packages of ours a room's shipped code may import; the first line that matches a room counts. A
// room may always import the packages below itself.
var rooms = []struct {
	room []string
	may  []string
	why  string
}{
	{
		[]string{
			"internal/ground/backoff", "internal/ground/build", "internal/ground/deadletter", "internal/ground/event",
			"internal/ground/files", "internal/ground/lifecycle", "internal/ground/logtext", "internal/ground/typedname",
			"internal/ground/versions", "internal/loglimit", "internal/pacing",
		},
		nil,
		"these are the lowest rooms",
	},
	{
		[]string{"proto/msghandler/admin/v1"},
		[]string{"proto/msghandler/v1"},
		"operators see the messages, states and verdicts of producers, and no producer links the operators' part",
	},
	{
		[]string{"internal/access"},
		[]string{"internal/ground/typedname"},
		"coordinators and the SDKs read names and globs alike, and no SDK imports the rules",
	},
	{
		[]string{"broker/rabbitmq/amqpconn"},
		[]string{"internal/ground/versions", "internal/ground/lifecycle"},
		"SDKs link it into the programs of other people; a broker's version decides how a queue is declared",
	},
	{
		[]string{"broker/kafka/kafkaconn"},
		[]string{
			"internal/ground/address", "internal/ground/deadletter", "internal/ground/lifecycle", "internal/ground/publish",
		},
		"SDKs link it into the programs of other people",
	},
	{
		[]string{"broker/nats/natsconn"},
		[]string{"internal/ground/address", "internal/ground/lifecycle", "internal/ground/publish"},
		"SDKs link it into the programs of other people",
	},
	{
		[]string{"internal/ground/publish"},
		[]string{"internal/ground/backoff", "internal/ground/lifecycle"},
		"the publishers of all brokers share it, also in the programs of other people: it knows no broker",
	},
	{
		publishers,
		[]string{"internal/ground/..."},
		"a publisher knows what all publishers share, and the connections of its library below it",
	},
	{
		[]string{"internal/halfmsg"},
		[]string{"internal/ground/backoff", "internal/ground/publish"},
		"the domain knows nothing but the port of a broker, which the SDKs share",
	},
	{
		[]string{"internal/access/tokenfile", "internal/access/oidc"},
		ground,
		"a source of identities knows no server and no rule",
	},
	{
		[]string{"internal/audit"},
		[]string{
			"internal/access", "internal/escape", "internal/loglimit", "internal/ground/backoff", "internal/ground/lifecycle",
		},
		"every room that changes or refuses records it, so it knows identities and nothing above them",
	},
	{
		[]string{"internal/peers"},
		[]string{"internal/halfmsg", "internal/peerstats"},
		"coordinators tell each other counts, by way of any store",
	},
	{
		[]string{"internal/peerstats"},
		[]string{"internal/halfmsg"},
		"the loops' hooks feed it, and metrics and pages read it",
	},
	{
		ground,
		[]string{"internal/ground/backoff", "internal/ground/files", "internal/ground/lifecycle"},
		"the ground imports nothing of ours, so that every room can import the ground",
	},
	{
		[]string{"internal/delivery"},
		[]string{"internal/halfmsg", "internal/ground/backoff", "internal/ground/lifecycle", "internal/loglimit"},
		"it is what the two loops share, a step above the domain and below the loops",
	},
	{
		[]string{"internal/store/memory"},
		[]string{"internal/halfmsg"},
		"it keeps the store's promise without Redis, for tests; nothing shipped imports it",
	},
	{
		[]string{"internal/attend"},
		ground,
		"server gives it the streams and callbacks ask through it, so it knows neither",
	},
	{
		loops,
		slices.Concat(ground, []string{"internal/delivery"}),
		"a loop knows the domain and the runner, not the other loop and no adapter",
	},
	{
		[]string{"internal/server/guard"},
		[]string{"proto/certs", "internal/connlimit", "internal/ground/lifecycle", "internal/loglimit"},
		"it bounds requests for any gRPC service, and knows no handler and no message",
	},
	{
		[]string{"internal/server/httpapi"},
		[]string{"internal/server/guard", "internal/ground/lifecycle"},
		"it serves any gRPC service by HTTP, and knows no handler and no message",
	},
	{
		[]string{"internal/server/policy"},
		[]string{"internal/halfmsg", "internal/ground/typedname"},
		"it decides about names and counts below any protocol",
	},
	{
		[]string{"internal/server/submit"},
		[]string{
			"internal/halfmsg", "internal/ground/batch", "internal/ground/backoff", "internal/ground/lifecycle",
			"internal/delivery",
		},
		"it gathers and waits below any protocol, and hands claims to the pipeline",
	},
	{
		[]string{"internal/server"},
		slices.Concat(ground, []string{"internal/delivery", "internal/attend"}),
		"it is a middle room: its handlers stand between the guard and the batches of the store",
	},
	{
		[]string{"internal/console/..."},
		slices.Concat(ground, []string{"internal/operate"}),
		"it is a middle room, whose pages have one desk of operators with the command line",
	},
	{
		middle, ground,
		"a middle room imports only the ground: rooms that do not know each other can be understood one at a time",
	},
	{
		[]string{"consumer/envelope"},
		nil,
		"producers and consumers both use it, and other people's programs import it alone",
	},
	{
		sdks,
		slices.Concat(sdks, []string{"proto/...", "internal/ground/..."}),
		"an SDK is imported by other people's programs and knows nothing of the coordinator",
	},
	{
		[]string{"internal/sqloutbox"},
		slices.Concat(ground, []string{
			"internal/config/...", "internal/server", "internal/sendloop",
			"producer/marker/sql", "producer/outbox", "prometheus/outboxmetrics",
		}),
		"it relays tables as the SDK's relay does, and publishes by the rules of half messages",
	},
	{
		[]string{"internal/operate"},
		slices.Concat(ground, []string{
			"consumer", "broker/rabbitmq/rabbitmqconsumer", "broker/kafka/kafkaconsumer",
			"broker/nats/natsconsumer",
		}),
		"coordinator and command line read dead letters as the consumer SDK does, on each broker",
	},
	{
		[]string{"internal/app/..."},
		slices.Concat(ground, middle, loops, publishers, []string{
			"internal/access/...", "internal/delivery", "internal/attend", "internal/server/policy",
			"internal/operate", "internal/sqloutbox",
		}),
		"app puts the coordinator together; who uses the coordinator is above it",
	},
	{
		[]string{"dev/bench/..."},
		[]string{"proto/...", "internal/ground/batch", "internal/ground/backoff", "producer", "producer/marker/..."},
		"a load is made from outside, as producers make it: it must share nothing with the measured code",
	},
	{
		[]string{"internal/cli/commandline"},
		slices.Concat(ground, []string{"internal/config/..."}),
		"every program links it",
	},
	{
		[]string{"dev/story"},
		slices.Concat(ground, sdks, []string{
			"internal/cli/commandline", "dev/embedded/...", "dev/demo/...", "examples/database",
		}),
		"the story is the demos' own, with embedded servers and the shipped coordinator as a process",
	},
	{
		[]string{"dev/embedded/..."},
		ground,
		"an embedded server knows no coordinator",
	},
	{
		[]string{"dev"},
		slices.Concat(ground, []string{
			"internal/app", "internal/cli/commandline", "internal/config", "dev/embedded/...", "dev/story",
		}),
		"it starts an app on embedded servers, as the command line starts one on others",
	},
	{
		[]string{"dev/benchmark"},
		slices.Concat(ground, []string{"internal/cli/commandline", "internal/config/...", "dev/bench/..."}),
		"the load is made from outside, by a program of its own",
	},
	{
		[]string{"internal/cli"},
		slices.Concat(ground, sdks, []string{
			"internal/app/...", "internal/config/...", "internal/access/tokenfile",
			"internal/operate", "internal/sqloutbox",
		}),
		"the command line starts an app or calls one, and edits the token file; only app knows middle rooms",
	},
	{
		[]string{"msghandlertest"},
		[]string{
			"proto/...", "producer/...", "consumer", "internal/app", "internal/config", "dev/embedded/...",
			"internal/ground/backoff",
		},
		"users import it in their tests: it starts an app, as the command line does, and hands messages to the SDKs",
	},
	{
		[]string{"dev/demo/..."},
		slices.Concat(sdks, []string{
			"proto/...", "internal/ground/backoff", "internal/ground/build", "internal/ground/lifecycle",
			"examples/database",
		}),
		"the demos show how the SDKs are used, with nothing else",
	},
	{
		[]string{"cmd/msghandler"},
		[]string{"internal/cli", "internal/cli/commandline"},
		"a main knows one room, and gives it the process",
	},
	{
		[]string{"cmd/msghandler-dev"},
		[]string{"dev", "internal/cli/commandline"},
		"a main knows one room, and gives it the process",
	},
	{
		[]string{"cmd/msghandler-bench"},
		[]string{"dev/benchmark", "internal/cli/commandline"},
		"a main knows one room, and gives it the process",
	},
	{
		[]string{"cmd/producer-demo", "cmd/consumer-demo"},
		slices.Concat(sdks, []string{"dev/demo/..."}),
		"a demo's main knows its room and the SDK it shows",
	},
	{
		[]string{"examples/..."},
		sdks,
		"users copy the examples, whose programs have the SDKs and nothing else of ours",
	},
	{
		[]string{"test/..."},
		slices.Concat(sdks, []string{"proto/...", "internal/...", "dev/...", "examples/...", "test/..."}),
		"tests may know everything",
	},
}

func TestRoomsImportOnlyWhatTheyMay(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		room := p.room()
		i := slices.IndexFunc(rooms, func(r struct {
			room []string
			may  []string
			why  string
		},
		) bool {
			return in(room, r.room)
		})
		if i < 0 {
			t.Errorf("%s is in no line of the table rooms: enter it, with what it may import and why", room)
			continue
		}
		for _, imported := range p.Imports {
			other, ours := strings.CutPrefix(imported, module+"/")
			if ours && !in(other, rooms[i].may) && !in(other, []string{room + "/..."}) && !sameRoom(room, other) {
				t.Errorf("%s must not import %s: %s", room, other, rooms[i].why)
			}
		}
	}
}

// sameRoom: rooms that consist of several packages, which may know each other.
func sameRoom(a, b string) bool {
	for _, room := range []string{
		"dev/demo", "dev/embedded", "internal/app", "internal/cli", "internal/console", "dev/bench", "examples",
	} {
		if in(a, []string{room + "/..."}) && in(b, []string{room + "/..."}) {
			return true
		}
	}
	return false
}

// free lists packages that a package must not even reach through others.
var free = []struct {
	room, prefix, why string
}{
	{"producer", "github.com/redis/go-redis", "an importer of the SDK gets Redis only with a marker store that needs it"},
	{"producer", "github.com/rabbitmq/amqp091-go", "a producer never talks to the broker"},
	{"producer/marker/memory", "github.com/redis/go-redis", "a store in memory needs no server"},
	{"producer", "database/sql", "an importer of the SDK gets SQL only with the markers that are in it"},
	{"producer/marker/sql", "github.com", "a database's driver is the user's, and nothing else is needed"},
	{"producer/outbox", "github.com/prometheus", "a relay gets Prometheus only with the metrics that need it"},
	{"producer/outbox", "github.com/rabbitmq/amqp091-go", "a relay to the coordinator gets no AMQP"},
	{"producer/outbox", "github.com/twmb", "a relay to the coordinator gets no client of Kafka"},
	{"consumer", "github.com/twmb", "a consumer of RabbitMQ gets no client of Kafka"},
	{"producer/outbox", "github.com/nats-io", "a relay to the coordinator gets no NATS"},
	{"consumer", "github.com/nats-io", "a consumer of RabbitMQ gets no NATS"},
	{"consumer", "github.com/redis/go-redis", "an importer of the SDK gets Redis only with the store that needs it"},
	{"consumer", "database/sql", "an importer of the SDK gets SQL only with the inbox that is in it"},
	{"consumer", "github.com/prometheus", "an importer of the SDK gets Prometheus only with the metrics that need it"},
	{"consumer/inbox/sql", "github.com/jackc", "a database's driver is the user's"},
	{"consumer", "google.golang.org/grpc", "a consumer never talks to the coordinator"},
	{"consumer", module + "/proto", "a consumer never talks to the coordinator"},
	{"internal/ground/address", "github.com", "a reader of the address of a server needs no driver for it"},
	{"internal/ground/publish", "github.com", "the rules of publishing know no broker's library, and SDKs link them"},
	{"internal/halfmsg", "github.com", "the domain is the standard library's and ours alone"},
	{"internal/halfmsg", "google.golang.org", "the domain is the standard library's and ours alone"},
	{"internal/loop", module + "/internal/halfmsg", "a runner of loops does not know what they do"},
	{"internal/confirmloop", "github.com/redis/go-redis", "the loops never see Redis"},
	{"internal/confirmloop", "google.golang.org/grpc", "the loops see producers through halfmsg.Callbacks"},
	{"internal/sendloop", "github.com/redis/go-redis", "the loops never see Redis"},
	{"internal/sendloop", "github.com/rabbitmq/amqp091-go", "the loops see the broker through halfmsg.Publisher"},
	{"internal/sendloop", "github.com/twmb", "the loops see the broker through halfmsg.Publisher"},
	{"internal/sendloop", "github.com/nats-io", "the loops see the broker through halfmsg.Publisher"},
	{"cmd/msghandler", module + "/dev", "the embedded servers, the demo and the load are programs of their own"},
	{"cmd/msghandler", "github.com/alicebob/miniredis", "embedded servers are msghandler-dev's"},
	{"cmd/msghandler", "github.com/nats-io/nats-server", "embedded servers are msghandler-dev's"},
	{"cmd/msghandler", "modernc.org", "SQLite is linked into the demos only: a coordinator calls databases"},
	{"cmd/msghandler", "github.com/HdrHistogram", "the load is a program of its own"},
	{"cmd/msghandler-bench", "github.com/jackc", "SQL drivers are linked into the demos only"},
	{"cmd/msghandler-bench", "modernc.org", "SQL drivers are linked into the demos only"},
	{"cmd/msghandler-bench", module + "/internal/app", "what it measures it must not share"},
	{"dev/story", module + "/internal/app", "the coordinator of the demo is the shipped program"},
	{"msghandlertest", "github.com/nats-io/nats-server", "the tests of users need no server of NATS"},
	{"msghandlertest", "modernc.org", "the tests of users bring their own database"},
	{"producer", module + "/msghandlertest", "what only tests need must not get into programs"},
	{"consumer", module + "/msghandlertest", "what only tests need must not get into programs"},
	{"internal/server", "github.com/redis/go-redis", "the server sees the store through halfmsg's roles"},
	{"internal/server", "github.com/rabbitmq/amqp091-go", "the server never sees the broker"},
	{"internal/server", "github.com/twmb", "the server never sees the broker"},
	{"internal/server/submit", "google.golang.org", "batches and waits know no gRPC and no protobuf"},
	{"internal/server/guard", module + "/proto/msghandler", "the guard reads requests of any service"},
	{"internal/server/guard", module + "/internal/halfmsg", "the guard knows nothing of messages"},
}

func TestForbiddenDependenciesAreNotIndirect(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, rule := range free {
			if p.room() != rule.room {
				continue
			}
			for _, dep := range p.Deps {
				ours := under(dep, module) && !strings.HasPrefix(rule.prefix, module)
				if under(dep, rule.prefix) && !ours {
					t.Errorf("%s must not depend on %s, even through others: %s", rule.room, dep, rule.why)
				}
			}
		}
	}
}

// under says whether an import path is prefix, a package below it, or a major version of it.
func under(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// drivers are the SQL drivers. The service has those of the databases whose outboxes it relays; the SDKs take the
// driver that their user links.
var drivers = []string{"github.com/jackc/pgx", "github.com/go-sql-driver/mysql", "modernc.org/sqlite"}

// mostForeign is how many packages of others the service may link. OpenTelemetry, gRPC, protobuf and the clients of
// the brokers and databases have nearly all of them.
const mostForeign = 320

func TestTheServiceLinksTwoSQLDrivers(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if p.room() != "cmd/msghandler" {
			continue
		}
		linked := slices.DeleteFunc(slices.Clone(drivers), func(driver string) bool {
			return !slices.ContainsFunc(p.Deps, func(dep string) bool { return under(dep, driver) })
		})
		if !slices.Equal(linked, drivers[:2]) {
			t.Errorf("%s links the SQL drivers %q, want %q", p.room(), linked, drivers[:2])
		}
		third := slices.DeleteFunc(slices.Clone(p.Deps), func(dep string) bool {
			return under(dep, module) || !thirdParty(dep)
		})
		figure(t, "third-party packages linked into cmd/msghandler: %d (at most %d)", len(third), mostForeign)
		if len(third) > mostForeign {
			t.Errorf("%s links %d packages of others, and %d at most: the service is to stay small", p.room(), len(third),
				mostForeign)
		}
	}
}

// thirdParty says whether a package is neither part of the standard library nor vendored by the standard library.
func thirdParty(path string) bool {
	domain, _, _ := strings.Cut(path, "/")
	return strings.Contains(domain, ".") && !strings.HasPrefix(path, "vendor/")
}
