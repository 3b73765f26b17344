package compare

import (
	"context"
	"database/sql"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of the database
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/compare/load"
	"github.com/msghandler/msghandler/test/compare/systems"
	"github.com/msghandler/msghandler/test/servers"
)

// world is the servers of all systems. One system runs at a time.
type world struct {
	t        testing.TB
	redis    *servers.RedisServer
	rabbit   *servers.RabbitServer
	database *servers.Database
	db       *sql.DB
	consumer *consumer
	broker   string
	// api and http are the coordinator's addresses, and process is the coordinator while it runs.
	api, http string
	process   *exec.Cmd
	admin     adminv1.AdminServiceClient
	// msghandler and service are the programs.
	msghandler, service string
	// next is the first number of the next load.
	next uint64
}

// newWorld starts private servers. PostgreSQL syncs each commit, RabbitMQ's quorum queue each confirmed message, and
// Redis its file by the flag. PostgreSQL makes no checkpoint of its own accord, so none falls into a measurement.
func newWorld(b *testing.B) *world {
	b.Helper()
	rabbit := servers.PrivateRabbitMQ(b)
	w := &world{
		t: b, rabbit: rabbit, broker: rabbit.URL, redis: servers.Redis(b, "--appendfsync", *fsync),
		database: servers.DurablePostgreSQL(b, "max_wal_size=4GB", "checkpoint_timeout=1h"),
	}
	w.service = build(b, "service", "./service")
	w.open()
	for _, kind := range systems.All {
		w.must(kind.Setup(b.Context(), w.servers()))
	}
	return w
}

// open prepares what every world has.
func (w *world) open() {
	w.msghandler = build(w.t, "msghandler", "github.com/msghandler/msghandler/cmd/msghandler")
	addresses := servers.Addresses(w.t, 2)
	w.api, w.http = addresses[0], addresses[1]
	var err error
	w.db, err = sql.Open(w.database.Driver, w.database.DSN)
	w.must(err)
	w.t.Cleanup(func() { _ = w.db.Close() })
	w.exec(systems.OrdersTable)
	conn, err := grpc.NewClient(w.api, grpc.WithTransportCredentials(insecure.NewCredentials()))
	w.must(err)
	w.t.Cleanup(func() { conn.Close() })
	w.admin = adminv1.NewAdminServiceClient(conn)
	w.consumer = startConsumer(w.t, w.broker)
	w.next = 1
}

func build(t testing.TB, name, program string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", "-o", path, program).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", program, err, out)
	}
	return path
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) exec(statement string) {
	w.t.Helper()
	if _, err := w.db.ExecContext(w.t.Context(), statement); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
}

// number is the result of a query with one number.
func (w *world) number(query string) (value float64) {
	w.t.Helper()
	w.must(w.db.QueryRowContext(w.t.Context(), query).Scan(&value))
	return value
}

// tidy vacuums and analyses all tables between two measurements, so that each system finds fresh statistics and no
// remains of another. The checkpoint frees the disk.
func (w *world) tidy() {
	w.t.Helper()
	w.exec(`VACUUM (ANALYZE)`)
	w.exec(`CHECKPOINT`)
}

func (w *world) servers() systems.Config {
	return systems.Config{Database: w.database.DSN, Broker: w.broker, Coordinator: w.api}
}

// numbersOfALoad are more than a load uses.
const numbersOfALoad = 10_000_000

// load is the start of a load's configuration.
func (w *world) load(kind systems.Kind) load.Config {
	first := w.next
	w.next += numbersOfALoad
	return load.Config{
		System: kind.Name, Servers: w.servers(), RoutingKey: queueName, First: first, BodySize: *body,
	}
}

// startCoordinator starts the coordinator for a system that has one, and returns what stops it.
func (w *world) startCoordinator(kind systems.Kind) (stop func()) {
	w.t.Helper()
	if !kind.Coordinator {
		return func() {}
	}
	w.process = exec.Command(w.msghandler, "serve")
	w.process.Env = append(os.Environ(),
		"MSGHANDLER_GRPC_ADDR="+w.api, "MSGHANDLER_HTTP_ADDR="+w.http, "MSGHANDLER_REDIS_URL="+w.redis.URL(),
		"MSGHANDLER_AMQP_URL="+w.broker, "MSGHANDLER_LOG_LEVEL=error")
	if kind.Outbox != nil {
		w.process.Env = append(w.process.Env, "MSGHANDLER_OUTBOX_SHOP_DSN="+w.database.DSN)
	}
	for _, setting := range kind.Outbox {
		w.process.Env = append(w.process.Env, "MSGHANDLER_OUTBOX_SHOP_"+setting)
	}
	w.process.Stderr = os.Stderr
	w.must(w.process.Start())
	w.t.Cleanup(w.killCoordinator)
	servers.Eventually(w.t, 30*time.Second, "the coordinator is ready", w.ready)
	return w.stopCoordinator
}

func (w *world) ready() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.http+"/readyz", nil)
	w.must(err)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

func (w *world) stopCoordinator() {
	w.must(w.process.Process.Signal(syscall.SIGTERM))
	err := w.process.Wait()
	w.process = nil
	w.must(err)
}

// killCoordinator ends the coordinator with SIGKILL, if it runs.
func (w *world) killCoordinator() {
	if w.process == nil {
		return
	}
	_ = w.process.Process.Kill()
	_ = w.process.Wait()
	w.process = nil
}

// coordinatorPid is 0 while no coordinator runs.
func (w *world) coordinatorPid() int {
	if w.process == nil {
		return 0
	}
	return w.process.Process.Pid
}
