package servers

import (
	"net/http"
	"testing"
	"time"
)

// joinTimeout is how long nodes that serve may take to know of each other: they have joined before they serve.
const joinTimeout = 30 * time.Second

// RabbitCluster starts three nodes and returns them once each node says that all three run as one cluster. The nodes
// stop when the test ends. The start takes about twice as long as PrivateRabbitMQ.
func RabbitCluster(t testing.TB) []*RabbitServer {
	t.Helper()
	const nodes = 3
	all := rabbitServers(t, chosenRelease(t), nodes)
	for _, server := range all {
		Eventually(t, joinTimeout, server.URL+" knows all nodes", func() bool {
			return server.runningNodes() == nodes
		})
	}
	return all
}

// runningNodes counts the running nodes of the cluster, as this node knows them.
func (r *RabbitServer) runningNodes() (count int) {
	r.t.Helper()
	var nodes []struct {
		Running bool `json:"running"`
	}
	r.check(r.Management().Call(http.MethodGet, "/api/nodes", nil, &nodes))
	for _, node := range nodes {
		if node.Running {
			count++
		}
	}
	return count
}

// Name is the node's name, NAME@localhost.
func (r *RabbitServer) Name() string { return r.node.name }
