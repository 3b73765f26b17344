package drill

import (
	"context"
	"crypto/x509"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of the outbox
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/test/servers"
)

// crashAgainAndAgain has the kernel kill a coordinator every few seconds, as a memory limit that is too low does.
func (w *world) crashAgainAndAgain() {
	c := w.coordinators[2]
	ctx, cancel := context.WithCancel(w.t.Context())
	var crashing sync.WaitGroup
	crashing.Go(func() {
		ticker := time.NewTicker(8 * time.Second)
		defer ticker.Stop()
		for ctx.Err() == nil {
			c.end(syscall.SIGKILL)
			w.start(c)
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
	w.crashing = func() {
		cancel()
		crashing.Wait()
	}
	w.t.Cleanup(w.crashing)
}

// stopProducer ends orders between the commit and the answer to Confirm.
func (w *world) stopProducer() {
	w.orders.stop()
	for range 20 {
		w.order()
	}
}

// moveProducer ends stock in the same way, and starts it at another address.
func (w *world) moveProducer() {
	w.stock.stop()
	for n := range 20 {
		w.stock.order(w.t.Context(), w.coordinators[n%3].client)
	}
	w.must(w.stock.serve(servers.Addresses(w.t, 1)[0]))
}

// unbind takes the queue from the exchange.
func (w *world) unbind() {
	conn, err := amqp.Dial(w.rabbit.URL)
	w.must(err)
	defer conn.Close()
	ch, err := conn.Channel()
	w.must(err)
	w.must(ch.QueueUnbind(queue, key, exchange, nil))
}

// fillRedis lets another user of Redis take its memory.
func (w *world) fillRedis() {
	w.redis.CLI("SETRANGE", "filler", "58000000", "x")
	for n := range 200 {
		key := fmt.Sprint("filler-", n)
		if exec.Command("redis-cli", "-e", "-u", w.redis.URL(), "SETRANGE", key, "100000", "x").Run() != nil {
			return
		}
	}
	w.t.Fatal("Redis does not get full")
}

// alarm raises RabbitMQ's alarm of memory.
func (w *world) alarm() { w.rabbit.Ctl("set_vm_memory_high_watermark", "0.0000001") }

// hangConfirm has orders wait in its Confirm.
func (w *world) hangConfirm() {
	w.orders.hang()
	for range 20 {
		w.order()
	}
}

// crowdSize is many producers, and not more than have a series each.
const crowdSize = 90

// stopCrowd has many producers commit, and ends all of them at once.
func (w *world) stopCrowd() {
	for n, addr := range servers.Addresses(w.t, crowdSize) {
		s := &shop{name: fmt.Sprintf("crowd-%02d", n), addr: addr, committed: map[string]bool{}}
		w.crowd = append(w.crowd, s)
	}
	var ordering sync.WaitGroup
	for n, s := range w.crowd {
		ordering.Go(func() {
			for range 5 {
				s.order(w.t.Context(), w.coordinators[n%3].client)
			}
		})
	}
	ordering.Wait()
}

// fullQueue is a queue without consumers.
const fullQueue = "reports"

// limitQueue binds a queue that takes a single message.
func (w *world) limitQueue() {
	conn, err := amqp.Dial(w.rabbit.URL)
	w.must(err)
	defer conn.Close()
	ch, err := conn.Channel()
	w.must(err)
	_, err = ch.QueueDeclare(fullQueue, true, false, false, false, nil)
	w.must(err)
	w.must(w.rabbit.Management().Call(http.MethodPut, "/api/policies/%2F/limit", map[string]any{
		"pattern": "^" + fullQueue + "$", "definition": map[string]any{"max-length": 1, "overflow": "reject-publish"},
	}, nil))
	w.must(ch.QueueBind(fullQueue, key, exchange, false, nil))
}

// deleteVhost removes the virtual host with all that is in it. Nothing waits there.
func (w *world) deleteVhost() {
	w.must(w.rabbit.Management().Call(http.MethodDelete, "/api/vhosts/%2F", nil, nil))
}

// slowHandshake closes the connections, and lets no new one come about in time.
func (w *world) slowHandshake() {
	w.toRabbit.Hold()
	w.toRabbit.Disconnect()
}

func (w *world) killNATS() { w.nats.Kill() }

// lockOutbox has a session hold the table of the outbox.
func (w *world) lockOutbox() {
	db, err := sql.Open("pgx", w.outbox.DSN)
	w.must(err)
	w.t.Cleanup(func() { _ = db.Close() })
	tx, err := db.Begin()
	w.must(err)
	_, err = tx.Exec("LOCK TABLE msghandler_outbox IN ACCESS EXCLUSIVE MODE")
	w.must(err)
}

// fillPlain inserts a row for an exchange without a queue into the outbox in plain SQL.
func (w *world) fillPlain() {
	db, err := sql.Open("pgx", w.outbox.DSN)
	w.must(err)
	defer db.Close()
	_, err = db.Exec("INSERT INTO msghandler_outbox (id, exchange, routing_key, body) VALUES ($1, $2, $3, '{}')",
		fmt.Sprint(time.Now().UnixNano()), plainExchange, key)
	w.must(err)
}

// cutOff closes the way of one coordinator to RabbitMQ. The others have theirs.
func (w *world) cutOff() { w.toRabbitOfOne.Cut() }

func (w *world) killKafka() { w.kafka.Kill() }

// failConfirm has every third Confirm call of orders fail.
func (w *world) failConfirm() { w.orders.setFails(3) }

// wrongKey is a key that the configuration does not have.
const wrongKey = "polcy"

// refuseConfiguration adds a key with a slip to the configuration file.
func (w *world) refuseConfiguration() {
	content, err := os.ReadFile(w.files.config)
	w.must(err)
	w.must(os.WriteFile(w.files.config, append(content, wrongKey+": {calls_per_second: 5}\n"...), 0o600))
}

// expireCertificate has the certificate for calls to producers end in a moment.
func (w *world) expireCertificate() {
	soonOver := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(3 * time.Second) }
	w.must(w.install(w.authority.IssueEdited(soonOver, "coordinator")))
}

// login and secret are what NATS asks for once its password was rotated.
const login, secret = "coordinator", "of-today"

// rotatePassword has NATS ask for a password. NATS closes connections that have not shown it.
func (w *world) rotatePassword() {
	w.nats.Configure(fmt.Sprintf("authorization { user: %q, password: %q }", login, secret))
}

// fillDisk lets Redis write nothing to its disk.
func (w *world) fillDisk() { w.redis.FillDisk() }

// promoteReplica makes another Redis the master, as an operator or a Sentinel does.
func (w *world) promoteReplica() {
	host, port, _ := strings.Cut(w.redis.Addr, ":")
	w.replica = servers.Redis(w.t, "--maxmemory", "4gb", "--replicaof", host, port)
	servers.Eventually(w.t, patience, "the replica is in sync", func() bool {
		return strings.Contains(w.replica.Replication(), "master_link_status:up")
	})
	w.replica.CLI("REPLICAOF", "NO", "ONE")
	host, port, _ = strings.Cut(w.replica.Addr, ":")
	w.redis.CLI("REPLICAOF", host, port)
}
