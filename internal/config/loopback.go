package config

import (
	"net/netip"
	"slices"
	"strings"
)

// checkLoopback rejects names of localhost in callbacks.allow when callbacks.networks excludes loopback: half messages
// with such a target would be accepted, and their producers never asked.
func (l *loading) checkLoopback() {
	c := &l.config.Callbacks
	if slices.ContainsFunc(c.Networks, reachesLoopback) {
		return
	}
	for _, glob := range c.Allow {
		host, port := glob[:strings.LastIndexByte(glob, ':')], glob[strings.LastIndexByte(glob, ':')+1:]
		if !isLocalhost(host) {
			continue
		}
		without := "callbacks.networks leaves out loopback and private addresses by default"
		if len(c.Networks) > 0 {
			without = l.says("callbacks.networks") + " holds no loopback address"
		}
		l.relation(
			"callbacks.allow",
			"names %s, and %s, so no producer there would ever be asked: write 127.0.0.1:%s, here and at the "+
				"producer, or name 127.0.0.0/8 and ::1/128 in callbacks.networks, beside the networks of all other producers",
			glob,
			without,
			port,
		)
		return
	}
}

// isLocalhost says whether a name always means this host (RFC 6761).
func isLocalhost(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// reachesLoopback says whether a CIDR, which was checked, holds a loopback address.
func reachesLoopback(cidr string) bool {
	network, err := netip.ParsePrefix(cidr)
	return err == nil && (network.Overlaps(netip.MustParsePrefix("127.0.0.0/8")) || network.Contains(netip.IPv6Loopback()))
}
