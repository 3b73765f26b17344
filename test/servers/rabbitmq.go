package servers

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Variable names the environment variable that holds the tests' shared broker: a Broker as JSON.
const Variable = "TEST_RABBITMQ"

// Broker says where a RabbitMQ is; the JSON form is what Variable holds.
type Broker struct {
	// URL is amqp://USER:PASSWORD@HOST:PORT/.
	URL string `json:"url"`
	// Management is http://USER:PASSWORD@HOST:PORT.
	Management string `json:"management"`
	// Release is the release that the broker is of; empty is the oldest.
	Release string `json:"release,omitempty"`
}

// Vhost is a virtual host of a test's own, without exchanges and queues of other tests.
type Vhost struct {
	// URL is amqp://guest:guest@127.0.0.1:PORT/NAME.
	URL string
	// Name is the virtual host's name.
	Name string

	t          testing.TB
	management *Management
}

// RabbitMQ makes a fresh virtual host on the broker that the run shares (Variable), or else on a private broker,
// started by this process at the first call and stopped by Main. The virtual host is deleted when the test ends.
func RabbitMQ(t testing.TB) *Vhost {
	t.Helper()
	broker, err := sharedBroker()
	if errors.Is(err, ErrNotInstalled) {
		Missing(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	return newVhost(t, broker)
}

func newVhost(t testing.TB, broker Broker) *Vhost {
	t.Helper()
	v := vhostOf(t, broker, "test-"+strings.ToLower(rand.Text()[:12]))
	name, m := v.Name, v.management
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(m.Call(http.MethodPut, "/api/vhosts/"+name, nil, nil))
	t.Cleanup(func() { _ = m.Call(http.MethodDelete, "/api/vhosts/"+name, nil, nil) })
	all := map[string]string{"configure": ".*", "write": ".*", "read": ".*"}
	must(m.Call(http.MethodPut, "/api/permissions/"+name+"/guest", all, nil))
	return v
}

func vhostOf(t testing.TB, broker Broker, name string) *Vhost {
	return &Vhost{
		URL: strings.TrimRight(broker.URL, "/") + "/" + name, Name: name, t: t,
		management: &Management{URL: broker.Management, Vhost: name},
	}
}

// Management is the broker's HTTP API, for this virtual host.
func (v *Vhost) Management() *Management {
	return v.management
}

// CloseConnections cuts every client connection to the virtual host. There are at least so many connections, and
// CloseConnections waits until it knows them: the management API learns of connections a little late, and a missed
// connection would live on.
func (v *Vhost) CloseConnections(atLeast int) {
	v.t.Helper()
	Eventually(v.t, 30*time.Second, fmt.Sprintf("%d connections to cut", atLeast), func() bool {
		names, err := v.management.Connections()
		if err != nil {
			v.t.Fatal(err)
		}
		if len(names) < atLeast {
			return false
		}
		v.management.CloseConnections(names)
		return true
	})
}

// RabbitServer is a RabbitMQ node of a test's own, to be hurt. Its methods are for the test's own goroutine.
type RabbitServer struct {
	// URL is amqp://guest:guest@127.0.0.1:PORT/; it stays the same after a restart.
	URL string

	t    testing.TB
	node *Node
	// frozen is set between Freeze and Thaw or Kill.
	frozen bool
}

// PrivateRabbitMQ starts a node and stops the node when the test ends. The start takes about ten seconds: use
// RabbitMQ where the broker itself is not broken.
func PrivateRabbitMQ(t testing.TB) *RabbitServer {
	t.Helper()
	return rabbitServers(t, chosenRelease(t), 1)[0]
}

// PrivateRabbitMQOf does the same with a node of that release: oldest, trixie or newest.
func PrivateRabbitMQOf(t testing.TB, name string) *RabbitServer {
	t.Helper()
	return rabbitServers(t, releaseOf(t, name), 1)[0]
}

// rabbitServers starts so many nodes of a release as one cluster, and stops them when the test ends.
func rabbitServers(t testing.TB, release release, count int) []*RabbitServer {
	t.Helper()
	nodes, err := launchNodes(t.TempDir(), release, count)
	if errors.Is(err, ErrNotInstalled) {
		Missing(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*RabbitServer, count)
	for i, node := range nodes {
		all[i] = &RabbitServer{URL: node.URL(), t: t, node: node}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("RabbitMQ wrote:\n%s", node.logs())
			}
			node.Close()
		})
	}
	return all
}

// Vhost makes a fresh virtual host on this node.
func (r *RabbitServer) Vhost() *Vhost {
	r.t.Helper()
	return newVhost(r.t, r.node.Broker())
}

// VhostNamed is a virtual host that this node has, or will have.
func (r *RabbitServer) VhostNamed(name string) *Vhost { return vhostOf(r.t, r.node.Broker(), name) }

// Management is the node's HTTP API, for the virtual host "/".
func (r *RabbitServer) Management() *Management {
	return &Management{URL: r.node.ManagementURL(), Vhost: "/"}
}

// Kill ends the node with SIGKILL and returns when it is gone. All declarations that were answered before survive.
func (r *RabbitServer) Kill() {
	r.t.Helper()
	if !r.frozen {
		r.writeDeclarations()
	}
	r.frozen = false
	r.check(r.node.Kill())
}

// writeDeclarations makes Mnesia write what was declared to its files. RabbitMQ before 4 answers a declaration up to
// two seconds earlier. A node that is killed in between has lost the queue and all confirmed messages in the queue.
func (r *RabbitServer) writeDeclarations() {
	r.t.Helper()
	r.Ctl("eval", "case whereis(mnesia_sup) of undefined -> khepri; _ -> dumped = mnesia:dump_log() end.")
}

// Stop ends the node with SIGTERM and returns when it is gone.
func (r *RabbitServer) Stop() {
	r.t.Helper()
	r.check(r.node.Stop())
}

// Start runs the node again with the same ports and data and returns when it serves.
func (r *RabbitServer) Start() {
	r.t.Helper()
	r.check(r.node.Start())
}

// Ctl runs rabbitmqctl against the node, such as Ctl("set_vm_memory_high_watermark", "0"), and returns the output.
func (r *RabbitServer) Ctl(args ...string) string {
	r.t.Helper()
	out, err := r.node.Ctl(args...)
	r.check(err)
	return out
}

// Pid is the node's process id, for signals such as SIGSTOP; 0 while it does not run.
func (r *RabbitServer) Pid() int {
	return r.node.beam.number()
}

// Freeze stops the node's process without ending the process (SIGSTOP), and Thaw resumes the process. Kill may follow.
func (r *RabbitServer) Freeze() {
	r.t.Helper()
	r.writeDeclarations()
	r.frozen = true
	r.check(syscall.Kill(r.Pid(), syscall.SIGSTOP))
}

// Thaw undoes Freeze.
func (r *RabbitServer) Thaw() {
	r.t.Helper()
	r.frozen = false
	r.check(syscall.Kill(r.Pid(), syscall.SIGCONT))
}

func (r *RabbitServer) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// shared is the broker of this process, started at the first need.
var shared struct {
	sync.Mutex
	dir  string
	node *Node
	err  error
}

func sharedBroker() (Broker, error) {
	if text := os.Getenv(Variable); text != "" {
		var broker Broker
		if err := json.Unmarshal([]byte(text), &broker); err != nil {
			return Broker{}, fmt.Errorf("%s is not a broker as JSON: %w", Variable, err)
		}
		// A broker of another release than the chosen release is of no use.
		if cmp.Or(broker.Release, oldest) == Release() {
			return broker, nil
		}
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.node == nil && shared.err == nil {
		shared.dir, shared.err = os.MkdirTemp("", "msghandler-rabbitmq-")
		if shared.err == nil {
			shared.node, shared.err = LaunchNode(shared.dir)
		}
	}
	if shared.err != nil {
		return Broker{}, shared.err
	}
	return shared.node.Broker(), nil
}

// stopShared stops the broker of this process and removes its files.
func stopShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.node != nil {
		shared.node.Close()
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
	shared.dir, shared.node, shared.err = "", nil, nil
}

// Main is the TestMain of packages that use RabbitMQ or a database: it runs the tests, stops the servers of this
// process and exits.
//
//	func TestMain(m *testing.M) { servers.Main(m) }
func Main(m *testing.M) {
	os.Exit(Stopping(m).Run())
}

// Stopping is m, with the servers of this process stopped after the tests:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }
func Stopping(m *testing.M) interface{ Run() int } {
	return stopping{m}
}

type stopping struct{ m *testing.M }

// Run runs the tests and returns their exit status.
func (s stopping) Run() int {
	defer stopSQL()
	defer stopShared()
	return s.m.Run()
}
