package drill

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/msghandler/msghandler/proto/certs/certstest"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/fakekafka"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// world is an installation: Redis, RabbitMQ, NATS, Kafka, a database with an outbox, three coordinators, producers, a
// consumer and Prometheus.
type world struct {
	t *testing.T
	// replica becomes the master in place of redis.
	redis, replica *servers.RedisServer
	rabbit         *servers.RabbitServer
	nats           *servers.NATSServer
	kafka          *fakekafka.Cluster
	outbox         *servers.Database
	coordinators   []*coordinator
	// prometheus is the address of Prometheus.
	prometheus    string
	orders, stock *shop
	// crowd are producers that run on one platform. traded counts their orders of trade.
	crowd  []*shop
	traded int
	// oldStock is where stock served before it moved.
	oldStock  string
	delivered *deliveries
	// toRedis and toRabbit are the ways of the coordinators to the servers. toRabbitOfOne leads one of them to toRabbit.
	toRedis, toRabbit, toRabbitOfOne *wire.Proxy
	files                            files
	authority                        *certstest.Authority
	// crashing ends the crash loop, and starving the starvation of a coordinator; nil: there is none.
	crashing, starving func()
	// pastMade says that the coordinators know what is usual.
	pastMade bool
}

// coordinator is a process under a service manager: the drill.
type coordinator struct {
	grpc, http string
	// environment is its /etc/default/msghandler.
	environment []string
	log         string
	client      pb.MessageHandlerServiceClient

	mu sync.Mutex
	*programs.Process
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, redis: servers.Redis(t, "--maxmemory", "64mb"), rabbit: servers.PrivateRabbitMQ(t),
		nats: servers.NATS(t), kafka: fakekafka.Start(t, nil), outbox: servers.PostgreSQL(t),
		authority: certstest.NewAuthority(t),
		orders:    &shop{name: "orders", committed: map[string]bool{}},
		stock:     &shop{name: "stock", committed: map[string]bool{}},
		delivered: &deliveries{all: map[string]int{}},
	}
	w.toRedis, w.toRabbit = wire.TCP(t, w.redis.Addr), wire.TCP(t, wire.Host(t, w.rabbit.URL))
	w.toRabbitOfOne = wire.TCP(t, w.toRabbit.Addr)
	w.writeFiles()
	addresses := servers.Addresses(t, 9)
	w.declare()
	go w.delivered.consume(t.Context(), w.rabbit.URL) // ends with its server at the latest
	w.must(w.msghandler([]string{"outbox", "migrate", "--database", "shop"}))
	w.must(w.orders.serve(addresses[0]))
	w.must(w.stock.serve(addresses[1]))
	w.oldStock = addresses[1]
	for i := range 3 {
		c := &coordinator{grpc: addresses[2+2*i], http: addresses[3+2*i], log: filepath.Join(t.TempDir(), "log")}
		conn, err := grpc.NewClient(c.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
		w.must(err)
		t.Cleanup(func() { _ = conn.Close() })
		c.client = pb.NewMessageHandlerServiceClient(conn)
		w.coordinators = append(w.coordinators, c)
	}
	w.coordinators[1].environment = []string{"MSGHANDLER_AMQP_URL=" + w.toRabbitOfOne.URL(w.rabbit.URL)}
	for _, c := range w.coordinators {
		w.start(c)
	}
	t.Cleanup(w.stopAll)
	w.prometheus = addresses[8]
	w.startPrometheus()
	servers.Eventually(t, patience, "a message is stored", func() bool {
		w.order()
		return w.orders.has() > 0
	})
	servers.Eventually(t, patience, "messages are delivered", func() bool {
		missing, _ := w.delivered.missing(w.orders)
		return missing == 0
	})
	return w
}

// must ends the drill at an error of a preparation.
func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// settings are what coordinators and the doctor have in common.
func (w *world) settings() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "MSGHANDLER_REDIS_URL=" + w.toRedis.URL(w.redis.URL()),
		"MSGHANDLER_AMQP_URL=" + w.toRabbit.URL(w.rabbit.URL), "MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*",
		"MSGHANDLER_BROKERS_EVENTS_URL_FILE=" + w.files.events, "MSGHANDLER_BROKERS_LOGS_URL=" + w.kafka.URL("", ""),
		"MSGHANDLER_CALLBACKS_TLS_CERT=" + w.files.cert, "MSGHANDLER_CALLBACKS_TLS_KEY=" + w.files.key,
		"MSGHANDLER_OUTBOX_SHOP_DSN=" + w.outbox.URL(), "MSGHANDLER_OUTBOX_SHOP_PRODUCER=plain",
	}
}

// start runs a coordinator as its service manager does.
func (w *world) start(c *coordinator) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Process = programs.Launch(w.t, append(w.settings(), c.environment...),
		exec.Command(programs.Path("msghandler"), "serve", "--config", w.files.config, "--grpc.addr", c.grpc,
			"--http.addr", c.http), c.log)
}

// end ends a coordinator, and returns when its process is gone.
func (c *coordinator) end(signal syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.End(signal) // it ends by the signal
}

func (w *world) stopAll() {
	for _, c := range w.coordinators {
		c.end(syscall.SIGTERM)
		if log, err := os.ReadFile(c.log); err == nil && w.t.Failed() {
			w.t.Logf("the end of the log of %s:\n%s", c.grpc, log[max(0, len(log)-3000):])
		}
	}
	for _, s := range w.shops() {
		s.stop()
	}
}

// shops are all producers.
func (w *world) shops() []*shop { return append([]*shop{w.orders, w.stock}, w.crowd...) }

// declare makes the exchange and its queue.
func (w *world) declare() {
	conn, err := amqp.Dial(w.rabbit.URL)
	w.must(err)
	defer conn.Close()
	ch, err := conn.Channel()
	w.must(err)
	w.must(ch.ExchangeDeclare(exchange, "topic", true, false, false, false, nil))
	w.must(ch.ExchangeDeclare(plainExchange, "topic", true, false, false, false, nil))
	_, err = ch.QueueDeclare(queue, true, false, false, false, nil)
	w.must(err)
	w.must(ch.QueueBind(queue, key, exchange, false, nil))
}

var (
	pageConfig  = regexp.MustCompile("(?s)```yaml\n(global:.*?)```")
	pageTargets = regexp.MustCompile(`targets: \[.*?\]`)
)

// startPrometheus runs Prometheus with the configuration of docs/run/monitoring.md and our alerts.
func (w *world) startPrometheus() {
	page, err := os.ReadFile("../../docs/run/monitoring.md")
	w.must(err)
	found := pageConfig.FindSubmatch(page)
	if found == nil {
		w.t.Fatal("docs/run/monitoring.md has no configuration of Prometheus")
	}
	var targets []string
	for _, c := range w.coordinators {
		targets = append(targets, fmt.Sprintf("%q", c.http))
	}
	config := pageTargets.ReplaceAllString(string(found[1]), "targets: ["+strings.Join(targets, ", ")+"]")
	dir := w.t.TempDir()
	w.must(os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	rules, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
	w.must(err)
	w.must(os.WriteFile(filepath.Join(dir, "alerts.yaml"), rules, 0o600))
	cmd := exec.Command(servers.Tool(w.t, "prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data",
		"--web.listen-address="+w.prometheus)
	cmd.Dir = dir
	var log servers.Log
	cmd.Stdout, cmd.Stderr = &log, &log
	w.must(cmd.Start())
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	servers.Eventually(w.t, patience, "Prometheus has scraped the coordinators", func() bool {
		text := get("http://" + w.prometheus + "/api/v1/query?query=sum(up)")
		return strings.Contains(text, `"3"]`) && w.alert("MsghandlerAbsent") == ""
	})
}

// order has the shop orders take an order, at one coordinator after the other.
func (w *world) order() {
	w.orders.order(w.t.Context(), w.coordinators[time.Now().UnixNano()%3].client)
}

// trade has the shops take orders, some of the crowd at a time: after a repair business goes on.
func (w *world) trade() {
	w.order()
	w.stock.order(w.t.Context(), w.coordinators[time.Now().UnixNano()%3].client)
	for range min(len(w.crowd), 10) {
		s := w.crowd[w.traded/3%len(w.crowd)]
		s.order(w.t.Context(), w.coordinators[w.traded%3].client)
		w.traded++
	}
}

// msghandler is the program of the drill.
func (w *world) msghandler(args []string) error {
	cmd := exec.Command(programs.Path("msghandler"), args...)
	cmd.Env = w.settings()
	if len(w.coordinators) > 0 {
		cmd.Env = append(cmd.Env, "MSGHANDLER_SERVER="+w.coordinators[0].grpc)
	}
	return w.output(cmd)
}

func (w *world) output(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	w.t.Logf("%s", strings.TrimSpace(string(out)))
	return err
}

func (w *world) redisCLI(args []string) error { return w.output(exec.Command("redis-cli", args...)) }

func (w *world) rabbitmqctl(args []string) error {
	w.t.Log(w.rabbit.Ctl(args...))
	return nil
}

// rabbitmqadmin is the program that the node itself hands out.
func (w *world) rabbitmqadmin(args []string) error {
	base := w.rabbit.Management().URL
	program := get(base + "/cli/rabbitmqadmin")
	path := filepath.Join(w.t.TempDir(), "rabbitmqadmin")
	if err := os.WriteFile(path, []byte(program), 0o600); err != nil {
		return err
	}
	host, port, _ := strings.Cut(base[strings.LastIndex(base, "@")+1:], ":")
	return w.output(exec.Command("python3", append([]string{path, "-H", host, "-P", port}, args...)...))
}

// systemctl is the service manager: the drill itself.
func (w *world) systemctl(args []string) error {
	switch strings.Join(args, " ") {
	case "start orders":
		return w.orders.serve(w.orders.addr)
	case "restart orders":
		w.orders.setForgets(0)
		w.orders.setFails(0)
		w.orders.free()
		return nil
	case "start crowd":
		for _, s := range w.crowd {
			if err := s.serve(s.addr); err != nil {
				return err
			}
		}
		return nil
	case "restart rabbitmq-server":
		w.toRabbit.Restore()
		return nil
	case "restart nats-server":
		w.nats.Start()
		return nil
	case "restart kafka-server":
		w.kafka.Restart()
		return nil
	case "restart msghandler": // one after the other
		w.pastMade = false
		for _, c := range w.coordinators {
			c.end(syscall.SIGTERM)
			w.start(c)
			servers.Eventually(w.t, patience, "the coordinator is ready", func() bool {
				return strings.Contains(get("http://"+c.http+"/readyz"), `"ready": true`)
			})
		}
		return nil
	case "set-property msghandler.service MemoryMax=2G":
		w.crashing()
		return nil
	case "set-property msghandler.service CPUQuota=200%":
		w.starving()
		return nil
	}
	return errors.New("the drill does not know this command")
}

// iptables opens the way of the coordinator that was cut off.
func (w *world) iptables([]string) error {
	w.toRabbitOfOne.Restore()
	return nil
}

// remove makes room on the disk of Redis.
func (w *world) remove([]string) error {
	w.redis.FreeDisk()
	return nil
}

func (w *world) psql(args []string) error {
	return w.output(exec.Command(servers.Tool(w.t, "psql"), args...))
}

// endsWell demands that every signal ends and that each committed message was delivered once.
func (w *world) endsWell(rows []row) {
	for n := range rows {
		if rows[n].ended == 0 {
			w.awaitEnd(&rows[n])
		}
	}
	servers.Eventually(w.t, patience, "all messages are delivered", func() bool {
		return !slices.ContainsFunc(w.shops(), func(s *shop) bool {
			missing, _ := w.delivered.missing(s)
			return missing > 0
		})
	})
	for _, s := range w.shops() {
		if _, twice := w.delivered.missing(s); twice > 0 {
			w.t.Errorf("%d messages of %s came twice and are not flagged as copies", twice, s.name)
		}
		w.t.Logf("%d messages of %s were delivered", s.has(), s.name)
	}
	w.t.Logf("\n%s", table(rows))
}
