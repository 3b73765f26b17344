// Package fakekafka starts clusters of kfake for tests: brokers in the test's process that speak Kafka's protocol and
// keep their data in files. kfake is no Kafka: it has no replicas, and a test with kfake shows what a client does with
// a cluster's answers, and not what a cluster answers.
package fakekafka

import (
	"context"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/msghandler/msghandler/test/servers"
)

// Brokers is the size of a cluster. The brokers have the ids 0 to Brokers-1.
const Brokers = 3

// Cluster is a cluster of a test's own, to be hurt. Its methods are for the test's own goroutine.
type Cluster struct {
	// Fake is the present cluster; Restart replaces it. Tests inject faults there.
	Fake *kfake.Cluster
	// Hosts are the brokers' addresses, which stay the same after a restart.
	Hosts []string
	// Admin has all permissions, also on a cluster with logins.
	Admin *kgo.Client

	t       testing.TB
	options []kfake.Opt
	network *network
}

// Start starts a cluster, and stops it when the test ends. options may add logins and limits. admin are the options of
// a client with all permissions.
func Start(t testing.TB, options []kfake.Opt, admin ...kgo.Opt) *Cluster {
	t.Helper()
	k := &Cluster{t: t, network: &network{conns: map[*gatedConn]bool{}}, Hosts: servers.Addresses(t, Brokers)}
	ports := make([]int, len(k.Hosts))
	for i, host := range k.Hosts {
		_, port, _ := net.SplitHostPort(host)
		ports[i], _ = strconv.Atoi(port)
	}
	k.options = append([]kfake.Opt{
		kfake.Ports(ports...), kfake.DataDir(t.TempDir()), kfake.SyncWrites(), kfake.ListenFn(k.network.listen),
	}, options...)
	k.launch()
	t.Cleanup(func() {
		k.network.restore()
		k.Fake.Close()
	})
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(k.Hosts...)}, admin...)...)
	if err != nil {
		t.Fatal(err)
	}
	k.Admin = client
	t.Cleanup(client.Close)
	return k
}

func (k *Cluster) launch() {
	k.t.Helper()
	cluster, err := kfake.NewCluster(k.options...)
	if err != nil {
		k.t.Fatal(err)
	}
	k.Fake = cluster
}

// URL is kafka://HOST:PORT,...; user is USER:PASSWORD@ or empty, and query is ?NAME=VALUE or empty.
func (k *Cluster) URL(user, query string) string {
	return "kafka://" + user + strings.Join(k.Hosts, ",") + query
}

// Topic makes a topic with four partitions and the options of Kafka for topics.
func (k *Cluster) Topic(name string, options map[string]string) {
	k.t.Helper()
	if err := k.Fake.CreateTopic(name, 4, options); err != nil {
		k.t.Fatal(err)
	}
}

// Configure changes an option of a topic.
func (k *Cluster) Configure(topic, name, value string) {
	k.t.Helper()
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	option := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	option.Name, option.Value = name, &value
	resource.Configs = append(resource.Configs, option)
	request.Resources = append(request.Resources, resource)
	response, err := request.RequestWith(k.t.Context(), k.Admin)
	if err != nil || response.Resources[0].ErrorCode != 0 {
		k.t.Fatalf("configure %s: %v, %+v", topic, err, response)
	}
}

// Hang lets nothing pass, in both directions; the connections stand. The returned function ends it.
func (k *Cluster) Hang() (resume func()) {
	k.network.hang()
	return k.network.restore
}

// Silence drops all bytes, in both directions, and closes nothing: the connections are half-open. The returned function
// closes these connections; new connections pass then.
func (k *Cluster) Silence() (restore func()) {
	k.network.silence()
	return func() {
		k.network.cut()
		k.network.restore()
	}
}

// Cut closes all connections and refuses new ones. The returned function ends it.
func (k *Cluster) Cut() (restore func()) {
	k.network.cut()
	return k.network.restore
}

// Kill ends all brokers. What a hanging network holds back never arrives. The cluster writes each batch of records to
// its files before it answers; it also writes its state when it is ended, as kfake cannot be killed otherwise.
func (k *Cluster) Kill() {
	k.network.cut()
	k.Fake.Close()
}

// Restart starts the brokers again, with the same addresses and data, and ends Hang and Cut.
func (k *Cluster) Restart() {
	k.t.Helper()
	k.network.restore()
	k.launch()
}

// Kcat runs kcat, a client of Kafka on librdkafka, against the cluster, and returns the output. input is the standard
// input. The test is skipped where kcat is missing, except in CI.
func (k *Cluster) Kcat(input string, args ...string) string {
	k.t.Helper()
	path := servers.Tool(k.t, "kcat")
	ctx, cancel := context.WithTimeout(k.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append([]string{"-b", strings.Join(k.Hosts, ",")}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var failed strings.Builder
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		k.t.Fatalf("kcat %s: %v\n%s", strings.Join(args, " "), err, failed.String())
	}
	return string(out)
}

// network is what lies before the brokers: their listeners, and connections that pass, hang, or are cut.
type network struct {
	mu    sync.Mutex
	conns map[*gatedConn]bool
	// held is closed when a hanging network passes again; nil while it passes.
	held            chan struct{}
	isCut, isSilent bool
}

// listen is a listener of a broker.
func (n *network) listen(kind, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), kind, address)
	if err != nil {
		return nil, err
	}
	return &gatedListener{Listener: listener, network: n}, nil
}

func (n *network) hang() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held == nil {
		n.held = make(chan struct{})
	}
}

func (n *network) silence() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isSilent = true
}

func (n *network) silent() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.isSilent
}

func (n *network) cut() {
	n.mu.Lock()
	conns := n.conns
	n.conns, n.isCut = map[*gatedConn]bool{}, true
	n.mu.Unlock()
	for c := range conns {
		_ = c.Close()
	}
}

func (n *network) restore() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isCut, n.isSilent = false, false
	if n.held != nil {
		close(n.held)
		n.held = nil
	}
}

func (n *network) enter(c *gatedConn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isCut {
		return false
	}
	n.conns[c] = true
	return true
}

func (n *network) leave(c *gatedConn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

func (n *network) gate() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.held
}

type gatedListener struct {
	net.Listener
	network *network
}

// Accept implements net.Listener. Connections of a cut network are closed at once.
func (l *gatedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &gatedConn{Conn: conn, network: l.network, closed: make(chan struct{})}
		if l.network.enter(c) {
			return c, nil
		}
		_ = c.Close()
	}
}

// gatedConn is a broker's side of a connection.
type gatedConn struct {
	net.Conn
	network *network
	once    sync.Once
	closed  chan struct{}
}

// Read implements net.Conn. While the network hangs or is silent, nothing arrives.
func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for err == nil && c.network.silent() {
		n, err = c.Conn.Read(b)
	}
	if err == nil {
		err = c.pass()
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// Write implements net.Conn. While the network hangs, nothing leaves.
func (c *gatedConn) Write(b []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	if c.network.silent() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *gatedConn) pass() error {
	held := c.network.gate()
	if held == nil {
		return nil
	}
	select {
	case <-held:
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}

// Close implements net.Conn.
func (c *gatedConn) Close() error {
	c.once.Do(func() {
		c.network.leave(c)
		close(c.closed)
	})
	return c.Conn.Close()
}
