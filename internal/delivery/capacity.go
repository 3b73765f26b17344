package delivery

// Capacity bounds what waits in memory, by number and by size of the bodies. A Capacity is not safe for concurrent use.
type Capacity struct {
	// Claims and Bytes are the bounds. No Bytes is no bound on the size.
	Claims int
	Bytes  int

	claims, bytes int
	// typicalBodySize is a moving average of the latest bodies.
	typicalBodySize int
}

// assumedBodySize is the size of a body before any body was added.
const assumedBodySize = 16 << 10

// Free is how many claims fit, if their bodies have the typical size.
func (c *Capacity) Free() int {
	typical := c.typicalBodySize
	if typical == 0 {
		typical = assumedBodySize
	}
	switch {
	case c.Bytes == 0:
		return max(0, c.Claims-c.claims)
	case c.bytes >= c.Bytes:
		return 0
	}
	return max(0, min(c.Claims-c.claims, 1+(c.Bytes-c.bytes)/typical))
}

// FreeHalf is how many claims fit into the first half. Backlog leaves the other half to new messages.
func (c *Capacity) FreeHalf() int {
	half := *c
	half.Claims, half.Bytes = (c.Claims+1)/2, (c.Bytes+1)/2
	return half.Free()
}

// Waiting is how many claims are inside.
func (c *Capacity) Waiting() int { return c.claims }

// Add counts claims in, beyond the bounds too: callers that must keep the bounds call Free first.
func (c *Capacity) Add(leased ...Leased) {
	if len(leased) == 0 {
		return
	}
	bytes := 0
	for _, l := range leased {
		bytes += len(l.Body)
	}
	c.claims += len(leased)
	c.bytes += bytes
	c.typicalBodySize = (c.typicalBodySize + bytes/len(leased) + 1) / 2
	c.typicalBodySize = max(c.typicalBodySize, 1)
}

// Remove counts claims out.
func (c *Capacity) Remove(leased ...Leased) {
	c.claims -= len(leased)
	for _, l := range leased {
		c.bytes -= len(l.Body)
	}
}
