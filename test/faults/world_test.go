package faults

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/servers/natsserver"
)

// patience bounds every wait.
const patience = 2 * time.Minute

// others are the programs that this binary is when a row starts the binary as a process of its own, by their
// variable.
var others = map[string]func(config string) error{
	mortalVariable: liveAs, consumerVariable: beConsumer, nowhereVariable: beNowhere,
}

func TestMain(m *testing.M) {
	if natsserver.Child() {
		return
	}
	for variable, be := range others {
		if config, is := os.LookupEnv(variable); is {
			if err := be(config); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(programs.Main(m, "msghandler"))
}

// options are the special needs of a row's world.
type options struct {
	// settings of the coordinators, as MSGHANDLER_KEY=VALUE, after the settings of every row.
	settings []string
	// before is called when Redis and the broker are there, and the coordinators are not yet.
	before func(w *world)
	// redis are arguments for redis-server.
	redis []string
	// replica gives Redis a replica, and a Sentinel that the coordinators ask for the master.
	replica bool
	// once makes a load of the SDK's users alone, who repeat no id.
	once bool
	// bare makes a load without databases: no producer has SQL markers, and the consumers have no inbox.
	bare bool
	// ownBroker gives the row a RabbitMQ of its own, so that the row may stop the broker.
	ownBroker bool
	// url is the Redis in the coordinators' configuration; nil names the server itself.
	url func(w *world) string
	// consume starts the consumers; nil starts two consumers that note every copy.
	consume func(w *world)
	// amqp is the broker in the coordinators' configuration; nil names the broker itself.
	amqp func(w *world) string
	// binary is the coordinator; empty is the binary built by TestMain.
	binary string
	// consumers is the program of consumers in processes; empty is this binary.
	consumers string
	// wired gives each coordinator ways of its own to Redis, RabbitMQ and the producers, which a row may break.
	wired bool
	// stream gives the row a broker of another kind, for the load's messages. RabbitMQ stays the default broker.
	stream func(w *world) stream
	// attend has the producers with the SDK attend: they serve no port. cutAt is the step of a question at which some of
	// their streams are cut; empty cuts none.
	attend bool
	cutAt  string
	// relayed does the same for the producers' ways to each coordinator.
	relayed bool
}

// world is the system under test: a Redis of its own, a broker, and coordinators in real processes.
type world struct {
	t       *testing.T
	options options
	ledger  *Ledger
	redis   *servers.RedisServer
	// masters are those of the coordinators' Redis Cluster, where the row has one.
	masters []*servers.RedisServer
	// replica belongs to redis, and sentinel is the URL of the Sentinel of both, where the row has them.
	replica  *servers.RedisServer
	sentinel string
	// redisFile and amqpFile are the files of redis.url_file and amqp.url_file, where the row has them.
	redisFile, amqpFile string
	// consumers are services of a service manager, where the row has some.
	consumers units
	// load is the load of the row.
	load *load
	// forgot describes the writes that a fault made Redis forget.
	forgot forgotten
	broker *servers.Vhost
	// stream is the load's broker of another kind, where the row has one.
	stream stream
	// node is the row's own RabbitMQ, where the row has one.
	node *servers.RabbitServer
	// inserter is the producer that knows SQL alone, where the row has one.
	inserter *inserter
	// business is the database of consumers in processes, where the row has them.
	business *redis.Client
	// effects are the effects in the database of the load's consumers, where they have one.
	effects      *effectsTable
	coordinators []*coordinator
	// processes are producers in processes of their own, where a row has some.
	processes []*producerProcess
	wiring    wiring
	// cuts counts the streams of producers that were cut.
	cuts     atomic.Int64
	arrivals arrivals
}

// coordinator is one address at which a process comes and goes.
type coordinator struct {
	grpc, http, log string
	*programs.Process
	// ended says that a process of the coordinator was ended, and its counts are lost.
	ended bool
	ways
}

func newWorld(t *testing.T, o options) *world {
	t.Helper()
	w := &world{t: t, options: o, ledger: NewLedger(), redis: servers.Redis(t, o.redis...)}
	if o.replica {
		w.replicate()
	}
	if o.ownBroker {
		w.node = servers.PrivateRabbitMQ(t)
		w.broker = w.node.Vhost()
	} else {
		w.broker = servers.RabbitMQ(t)
	}
	if o.stream != nil {
		w.stream = o.stream(w)
	}
	if o.before != nil {
		o.before(w)
	}
	for i := range 3 {
		addresses := servers.Addresses(t, 2)
		log := filepath.Join(t.TempDir(), fmt.Sprint("coordinator-", i))
		c := &coordinator{grpc: addresses[0], http: addresses[1], log: log}
		w.coordinators = append(w.coordinators, c)
		w.wire(c)
		w.start(c)
		t.Cleanup(func() { w.end(c, syscall.SIGKILL) })
	}
	for _, c := range w.coordinators {
		c.Ready(c.http)
	}
	return w
}

// start starts a coordinator's process with short times.
func (w *world) start(c *coordinator) {
	w.t.Helper()
	redisURL, amqpURL := w.addresses()
	if w.options.wired {
		redisURL, amqpURL = c.redis.URL(redisURL), c.amqp.URL(amqpURL)
	}
	env := append(programs.Settings(c.grpc, c.http, redisURL, amqpURL,
		"MSGHANDLER_CONFIRM_BACKOFF=500ms,1s", "MSGHANDLER_CONFIRM_ATTEMPTS=4",
		// Longer than any fault lasts: a message that the broker refuses meanwhile must not end as DEAD.
		"MSGHANDLER_SEND_BACKOFF=200ms,500ms"+strings.Repeat(",1s", 60),
	), w.options.settings...)
	if w.stream != nil {
		env = append(env, "MSGHANDLER_BROKERS_STREAM_URL="+w.stream.url())
	}
	cmd := exec.Command(cmp.Or(w.options.binary, programs.Path("msghandler")), "serve")
	c.Process = programs.Launch(w.t, env, cmd, c.log)
}

// addresses are where Redis and RabbitMQ are for coordinators.
func (w *world) addresses() (redis, amqp string) {
	redis, amqp = cmp.Or(w.sentinel, w.redis.URL()), w.broker.URL
	if w.options.url != nil {
		redis = w.options.url(w)
	}
	if w.options.amqp != nil {
		amqp = w.options.amqp(w)
	}
	return redis, amqp
}

// end sends a signal, waits for the end of the process, and returns how the process ended.
func (w *world) end(c *coordinator, signal syscall.Signal) error {
	c.ended = true
	return c.End(signal)
}

// allReady waits until every coordinator is ready.
func (w *world) allReady() {
	w.t.Helper()
	for _, c := range w.coordinators {
		c.Ready(c.http)
	}
}

// unready waits until each coordinator reports that it is not ready, and why.
func (w *world) unready(why string) {
	w.t.Helper()
	for _, c := range w.coordinators {
		servers.Eventually(w.t, patience, "a coordinator is not ready: "+why, func() bool {
			status, text := c.page("/readyz")
			return status == http.StatusServiceUnavailable && strings.Contains(text, why)
		})
	}
}

// degraded waits until each coordinator reports the failure, and is ready for half messages nevertheless.
func (w *world) degraded(why string) {
	w.t.Helper()
	for _, c := range w.coordinators {
		servers.Eventually(w.t, patience, "a coordinator is ready and degraded: "+why, func() bool {
			status, text := c.page("/readyz")
			return status == http.StatusOK && strings.Contains(text, why)
		})
	}
}

// page reads a page of the coordinator; the status is 0 when there is no answer.
func (c *coordinator) page(path string) (status int, text string) { return programs.Page(c.http, path) }

// dial connects with a coordinator until the test ends.
func (w *world) dial(c *coordinator) *grpc.ClientConn {
	w.t.Helper()
	conn, err := grpc.NewClient(c.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	w.must(err)
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (w *world) targets() string {
	var all []string
	for _, c := range w.coordinators {
		all = append(all, c.address())
	}
	return strings.Join(all, ",")
}

// standing lists the messages in some states; ok says that the coordinator could answer.
func (w *world) standing(states ...pb.State) (keys map[string]bool, ok bool) {
	conn, err := grpc.NewClient(w.coordinators[0].grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	keys = map[string]bool{}
	for _, state := range states {
		request := &adminv1.ListMessagesRequest{Filter: &adminv1.MessageFilter{State: state}, PageSize: 1000}
		for more := true; more; more = request.PageToken != "" {
			page, err := adminv1.NewAdminServiceClient(conn).ListMessages(ctx, request)
			if err != nil {
				return nil, false
			}
			for _, r := range page.GetRecords() {
				keys[r.GetProducer()+"/"+r.GetMessage().GetId()] = true
			}
			request.PageToken = page.GetNextPageToken()
		}
	}
	return keys, true
}

// drain waits until nothing is on its way, for as long as the world may take, and returns the state then.
func (w *world) drain(within time.Duration) (end End) {
	w.t.Helper()
	for deadline := time.Now().Add(within); ; {
		underway, ok := w.standing(pb.State_STATE_PENDING, pb.State_STATE_SENDABLE, pb.State_STATE_ACKNOWLEDGED)
		parked, okToo := w.standing(pb.State_STATE_ABANDONED, pb.State_STATE_DEAD)
		end = End{Underway: underway, Parked: parked, Counted: -1}
		over := time.Now().After(deadline)
		if over && (!ok || !okToo) {
			w.t.Fatal("the coordinators do not list the messages on their way")
		}
		// Published messages may still be on their way to a consumer.
		if over || ok && okToo && len(underway) == 0 && (w.ledger.UndeliveredOf("") <= len(parked)) {
			break
		}
		poll := time.NewTimer(200 * time.Millisecond)
		<-poll.C
	}
	w.emptied()
	if len(end.Underway) == 0 {
		end.Left = w.left(end.Parked)
	}
	return end
}

// tails is the end of each coordinator's output.
func (w *world) tails() string {
	var out strings.Builder
	for _, c := range w.coordinators {
		text, _ := os.ReadFile(c.log) // for a failure's output only
		const most = 3000
		fmt.Fprintf(&out, "%s:\n%s\n", filepath.Base(c.log), text[max(0, len(text)-most):])
	}
	return out.String()
}
