package servers

import (
	"strconv"
	"strings"
	"testing"
)

// RedisCluster starts RedisMasters and returns their addresses.
func RedisCluster(t testing.TB) []string {
	t.Helper()
	return addressesOf(RedisMasters(t))
}

// RedisMasters starts a cluster of three masters without replicas, with those arguments, and returns them once each of
// them says cluster_state:ok. They stop when the test ends.
func RedisMasters(t testing.TB, args ...string) []*RedisServer {
	t.Helper()
	buses, err := freePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	var nodes []*RedisServer
	for _, bus := range buses {
		// The bus port is named, because its default of port+10000 may be taken or out of range.
		node := Redis(t, append([]string{
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
			"--cluster-node-timeout", "5000", "--cluster-port", strconv.Itoa(bus),
		}, args...)...)
		nodes = append(nodes, node)
	}
	create := append([]string{"--cluster", "create"}, addressesOf(nodes)...)
	path, cli := redisCommand(t, append(create, "--cluster-replicas", "0", "--cluster-yes"))
	run(t, path, cli...)
	for _, node := range nodes {
		Eventually(t, redisStartTimeout, node.Addr+" says cluster_state:ok", func() bool {
			return strings.Contains(node.CLI("cluster", "info"), "cluster_state:ok")
		})
	}
	return nodes
}

func addressesOf(nodes []*RedisServer) []string {
	addresses := make([]string, len(nodes))
	for i, node := range nodes {
		addresses[i] = node.Addr
	}
	return addresses
}
