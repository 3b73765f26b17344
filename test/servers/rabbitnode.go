package servers

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// nodeStartTimeout is long for a node that takes 10 s on two idle cores, because tests share the cores.
const nodeStartTimeout = 3 * time.Minute

// ErrNotInstalled is the error on a machine without RabbitMQ.
var ErrNotInstalled = errors.New("rabbitmq-server is not installed; scripts/install-test-servers.sh installs it")

// Node is a private RabbitMQ node with the management plugin. Its methods are safe for concurrent use.
type Node struct {
	release                    release
	dir, scripts, name         string
	port, distPort, managePort int
	together                   *together
	beam                       *process
}

// together is shared by the nodes of a cluster. A single node has its own.
type together struct {
	// first is the node that the others join.
	first string
	// cookie authenticates the nodes to each other.
	cookie string
	// epmd is the Erlang port mapper, at the port mapper, by which they find each other.
	epmd   *process
	mapper int
}

// LaunchNode starts a node with its files under dir and returns when clients and the management API are served. The
// caller stops it with Close. Tests use RabbitMQ and PrivateRabbitMQ instead.
func LaunchNode(dir string) (*Node, error) {
	r, err := currentRelease()
	if err != nil {
		return nil, err
	}
	nodes, err := launchNodes(dir, r, 1)
	if err != nil {
		return nil, err
	}
	return nodes[0], nil
}

// launchNodes starts so many nodes of a release as one cluster.
func launchNodes(dir string, release release, count int) ([]*Node, error) {
	scripts, err := rabbitScripts(release)
	if err != nil {
		return nil, err
	}
	for try := range 3 { // Another process may take a port between the choice and the start.
		var nodes []*Node
		if nodes, err = prepareNodes(filepath.Join(dir, fmt.Sprintf("try%d", try)), release, scripts, count); err != nil {
			return nil, err
		}
		if err = startNodes(nodes); err == nil {
			return nodes, nil
		}
		for _, n := range nodes {
			n.Close()
		}
	}
	return nil, err
}

// startNodes starts the first node and then the others, which join the first.
func startNodes(nodes []*Node) error {
	if err := nodes[0].Start(); err != nil {
		return err
	}
	failed := make([]error, len(nodes))
	var starting sync.WaitGroup
	for i, n := range nodes[1:] {
		starting.Go(func() { failed[i] = n.Start() })
	}
	starting.Wait()
	return errors.Join(failed...)
}

// rabbitScripts finds the scripts themselves: Debian's wrappers in the PATH change the user.
func rabbitScripts(release release) (string, error) {
	for _, dir := range []string{"/usr/lib/rabbitmq/bin", "/opt/rabbitmq/sbin"} {
		if release.exists(filepath.Join(dir, "rabbitmq-server")) {
			return dir, nil
		}
	}
	path, err := release.lookPath("rabbitmq-server")
	if err != nil {
		return "", ErrNotInstalled
	}
	return filepath.Dir(path), nil
}

func prepareNodes(dir string, release release, scripts string, count int) ([]*Node, error) {
	const portsOfNode = 3
	ports, err := freePorts(1 + portsOfNode*count)
	if err != nil {
		return nil, err
	}
	shared, err := newTogether(dir, release, ports[0])
	if err != nil {
		return nil, err
	}
	nodes := make([]*Node, count)
	for i := range nodes {
		own := ports[1+portsOfNode*i:]
		n := &Node{
			release: release, scripts: scripts,
			dir: filepath.Join(dir, fmt.Sprintf("node%d", i)), name: "test" + strconv.Itoa(own[0]) + "@localhost",
			port: own[0], distPort: own[1], managePort: own[2], together: shared,
		}
		shared.first = cmp.Or(shared.first, n.name)
		if err := n.writeFiles(); err != nil {
			return nil, fmt.Errorf("prepare a RabbitMQ node: %w", err)
		}
		n.beam = &process{
			path: filepath.Join(scripts, "rabbitmq-server"), release: release, dir: n.dir, env: n.environment(),
		}
		nodes[i] = n
	}
	return nodes, nil
}

func newTogether(dir string, release release, mapper int) (*together, error) {
	path, err := release.lookPath("epmd")
	if err != nil {
		return nil, fmt.Errorf("the Erlang port mapper is not installed: %w", err)
	}
	cookie := make([]byte, 20)
	_, _ = rand.Read(cookie)
	return &together{cookie: hex.EncodeToString(cookie), mapper: mapper, epmd: &process{
		path: path, args: []string{"-address", "127.0.0.1", "-port", strconv.Itoa(mapper)}, release: release, dir: dir,
	}}, nil
}

func (n *Node) writeFiles() error {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	files := map[string]string{
		// Erlang refuses a cookie that others may read.
		".erlang.cookie":    n.together.cookie,
		"rabbitmq-env.conf": "",
		"advanced.config":   "[].\n",
		"enabled_plugins":   "[rabbitmq_management].\n",
		"rabbitmq.conf":     n.configuration() + n.discovery(),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) configuration() string {
	return fmt.Sprintf(`listeners.tcp.1 = 127.0.0.1:%d
management.tcp.ip = 127.0.0.1
management.tcp.port = %d
default_user = guest
default_pass = guest
disk_free_limit.absolute = 100MB
vm_memory_high_watermark.absolute = 1GB
log.file.level = info
log.console = false
collect_statistics_interval = 500
`, n.port, n.managePort)
}

// discovery is the configuration of a node that joins the first node at its first start. The configuration names no
// other node: the joining node would try nodes that are not up yet, for a long time.
func (n *Node) discovery() string {
	first := n.together.first
	if n.name == first {
		return ""
	}
	return fmt.Sprintf(`cluster_formation.peer_discovery_backend = classic_config
cluster_formation.classic_config.nodes.1 = %s
cluster_formation.classic_config.nodes.2 = %s
`, first, n.name)
}

// environment is the whole environment of the scripts: settings for the machine's own RabbitMQ must not reach this
// node.
func (n *Node) environment() []string {
	file := func(name string) string { return filepath.Join(n.dir, name) }
	return []string{
		"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "HOME=" + n.dir,
		"ERL_EPMD_ADDRESS=127.0.0.1", "ERL_EPMD_PORT=" + strconv.Itoa(n.together.mapper),
		// The variable makes the script become the node, instead of staying as its parent.
		"RUNNING_UNDER_SYSTEMD=true",
		"RABBITMQ_NODENAME=" + n.name, "RABBITMQ_USE_LONGNAME=false", "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_NODE_PORT=" + strconv.Itoa(n.port), "RABBITMQ_DIST_PORT=" + strconv.Itoa(n.distPort),
		"RABBITMQ_MNESIA_BASE=" + file("mnesia"), "RABBITMQ_LOG_BASE=" + file("log"),
		"RABBITMQ_CONFIG_FILE=" + file("rabbitmq.conf"), "RABBITMQ_ADVANCED_CONFIG_FILE=" + file("advanced.config"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + file("enabled_plugins"), "RABBITMQ_CONF_ENV_FILE=" + file("rabbitmq-env.conf"),
		"RABBITMQ_GENERATED_CONFIG_DIR=" + file("generated"), "RABBITMQ_SCHEMA_DIR=" + file("schema"),
		"RABBITMQ_PID_FILE=" + file("rabbit.pid"),
		// Two schedulers: a node for tests should leave the machine to the tests.
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} +S 2:2",
		"RABBITMQ_CTL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
	}
}

// Start runs the node, also again after Stop or Kill with the same ports and data, and returns when it serves.
func (n *Node) Start() error {
	if err := n.together.start(); err != nil {
		return err
	}
	if err := n.beam.start(); err != nil {
		return err
	}
	err := poll(nodeStartTimeout, func() (bool, error) {
		if !n.beam.running() {
			return false, errors.New("it ended")
		}
		return n.serves(), nil
	})
	if err == nil {
		return nil
	}
	_ = n.beam.end(syscall.SIGKILL)
	return fmt.Errorf("rabbitmq-server on port %d: %w\n%s", n.port, err, n.logs())
}

// start runs the port mapper where there is none yet.
func (t *together) start() error {
	if t.epmd.running() {
		return nil
	}
	if err := t.epmd.start(); err != nil {
		return err
	}
	if err := poll(time.Minute, func() (bool, error) { return listening(t.mapper), nil }); err != nil {
		return fmt.Errorf("the Erlang port mapper on port %d: %w\n%s", t.mapper, err, t.epmd.output())
	}
	return nil
}

// serves says whether clients are accepted and the management API has statistics: RabbitMQ 4.3 answers 500 without
// them.
func (n *Node) serves() bool {
	return listening(n.port) && call(n.ManagementURL(), http.MethodGet, "/api/overview", nil, nil) == nil
}

// Stop ends the node with SIGTERM and returns when the node is gone.
func (n *Node) Stop() error { return n.beam.end(syscall.SIGTERM) }

// Kill ends the node with SIGKILL and returns when the node is gone.
func (n *Node) Kill() error { return n.beam.end(syscall.SIGKILL) }

// Close ends the node for good, and the node's own or shared port mapper. The files stay.
func (n *Node) Close() {
	_ = n.beam.end(syscall.SIGKILL)
	_ = n.together.epmd.end(syscall.SIGKILL)
}

// Ctl runs rabbitmqctl against the node and returns the output.
func (n *Node) Ctl(args ...string) (string, error) {
	path, command := n.release.command(filepath.Join(n.scripts, "rabbitmqctl"), append([]string{"-n", n.name}, args...))
	cmd := exec.Command(path, command...)
	cmd.Env, cmd.Dir = n.environment(), n.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("rabbitmqctl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimRight(string(out), "\n"), nil
}

// URL is where clients connect: amqp://guest:guest@127.0.0.1:PORT/.
func (n *Node) URL() string { return "amqp://guest:guest@" + loopback(n.port) + "/" }

// ManagementURL is where the management API is: http://guest:guest@127.0.0.1:PORT.
func (n *Node) ManagementURL() string { return "http://guest:guest@" + loopback(n.managePort) }

// Broker is the value of Variable for tests on this node.
func (n *Node) Broker() Broker {
	return Broker{URL: n.URL(), Management: n.ManagementURL(), Release: n.release.name}
}

// logs is the end of the node's output.
func (n *Node) logs() string {
	text := n.beam.output()
	files, _ := filepath.Glob(filepath.Join(n.dir, "log", "*.log"))
	for _, file := range files {
		text += "\n" + filepath.Base(file) + ":\n" + tail(file)
	}
	return text
}
