package guard

import "sync/atomic"

// resource is what clients use up with requests that are not answered yet.
type resource int

const (
	// unfinishedCalls are calls that have begun and whose requests are not decoded yet.
	unfinishedCalls resource = iota
	// unfinishedProbes are such calls to the health service. Their budget is separate, so health is answered
	// when calls are refused.
	unfinishedProbes
	// requestBytes are the announced bytes of all requests, until their calls end.
	requestBytes
	// largeBytes are the announced bytes of large requests, which count as requestBytes too. The difference between the
	// two budgets is kept for small requests.
	largeBytes
	// openStreams are the open streams of methods that answer everyone. A stranger may hold such a stream for ever.
	openStreams

	resources
)

const (
	// addressShare bounds what one address holds, as a multiple of what stays free. A single greedy address
	// ends at 7/8 of a budget; a second ends at 7/8 of the rest. Because the bound follows the free rest,
	// clients behind one NAT or proxy may use nearly all while no other client needs the budget.
	addressShare = 7
	// connectionShare bounds what one connection holds in the same way: a single greedy connection ends at half.
	connectionShare = 1
)

// budget is the limit of one resource for all clients together.
type budget struct {
	limit int64
	used  atomic.Int64
}

// address is an IP address (in IPv6 a /64) from which clients are connected.
type address struct {
	// connections is how many connections are open. Guard.mu guards the field.
	connections int
	held        [resources]atomic.Int64
}

// idle reports whether nothing refers to the address any more: no connection, and no call of an earlier connection.
func (a *address) idle() bool {
	for r := range a.held {
		if a.held[r].Load() != 0 {
			return false
		}
	}
	return a.connections == 0
}

func newBudgets(limits Limits) *[resources]budget {
	all := &[resources]budget{}
	all[unfinishedCalls].limit, all[unfinishedProbes].limit = int64(limits.Calls), int64(limits.Calls)
	all[requestBytes].limit, all[largeBytes].limit = int64(limits.Bytes), int64(limits.Bytes-limits.Bytes/4)
	all[openStreams].limit = int64(limits.Streams)
	return all
}

// allows says whether a budget allows an amount, given the totals that include the amount. The first request of
// an address and of a connection needs only a free rest, and the first of all not even that: a request larger
// than its share is not refused for ever.
func (b *budget) allows(amount, used, ofAddress, ofConnection int64) bool {
	free := b.limit - used
	switch {
	case used == amount:
		return true
	case free < 0:
		return false
	}
	return (ofAddress == amount || ofAddress <= addressShare*free) &&
		(ofConnection == amount || ofConnection <= connectionShare*free)
}

// acquireLocked takes an amount from a budget, and returns false where the amount does not fit. The caller holds
// c.mu.
func (c *connection) acquireLocked(r resource, amount int64) bool {
	b, ofAddress := &c.guard.budgets[r], &c.address.held[r]
	// A refused request must not use up the rest even for a moment, so look before taking.
	if !b.allows(amount, b.used.Load()+amount, ofAddress.Load()+amount, c.held[r]+amount) {
		return false
	}
	c.held[r] += amount
	if b.allows(amount, b.used.Add(amount), ofAddress.Add(amount), c.held[r]) {
		return true
	}
	c.releaseLocked(r, amount)
	return false
}

// releaseLocked gives an amount back. The caller holds c.mu.
func (c *connection) releaseLocked(r resource, amount int64) {
	c.held[r] -= amount
	c.address.held[r].Add(-amount)
	c.guard.budgets[r].used.Add(-amount)
}

// largestHolder returns the address that holds most of a resource, and how much. It is for log lines.
func (g *Guard) largestHolder(r resource) (name string, held int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for ip, a := range g.addresses {
		if n := a.held[r].Load(); n > held {
			name, held = ip.String(), n
		}
	}
	return name, held
}
