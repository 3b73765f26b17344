package address

import "net/netip"

// reserved are networks in which no producer has a server, and the services that a cloud gives to its machines
// alone. A program that connects to addresses of other people's choice must not connect to them.
var reserved = []struct {
	network netip.Prefix
	is      string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "this host"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local addresses and cloud metadata"},
	{netip.MustParsePrefix("100.100.100.200/32"), "cloud metadata"},
	{netip.MustParsePrefix("168.63.129.16/32"), "cloud metadata"},
	{netip.MustParsePrefix("192.0.0.0/24"), "protocol assignments and cloud metadata"},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarks of networks"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved addresses and broadcast"},
	{netip.MustParsePrefix("fd00:ec2::/32"), "cloud metadata"},
	{netip.MustParsePrefix("fd20:ce::254/128"), "cloud metadata"},
	{netip.MustParsePrefix("fe80::a9fe:a9fe/128"), "cloud metadata"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	// These forms hide an IPv4 address, and no server needs one of them today.
	{netip.MustParsePrefix("::/96"), "IPv4-compatible addresses"},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "IPv4-translated addresses"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "local NAT64"},
	{netip.MustParsePrefix("2001::/32"), "Teredo"},
	{netip.MustParsePrefix("2002::/16"), "6to4"},
}

// private are the networks that anyone may use for their own machines.
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("fc00::/7"),
	netip.MustParsePrefix("fec0::/10"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("fe80::/10"),
}

// nat64 maps all of IPv4 into IPv6 (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Plain returns the address that a packet to addr ends at: the IPv4 address inside an IPv4-mapped or a NAT64 address,
// or else addr without its zone.
func Plain(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if nat64.Contains(addr) {
		bytes := addr.As16()
		return netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return addr
}

// Reserved returns the network of addr in which no producer may be called, and what the network is for. Each form of
// an IPv4 address counts as the address.
func Reserved(addr netip.Addr) (network netip.Prefix, is string, found bool) {
	addr = Plain(addr)
	if addr == netip.IPv6Loopback() { // it lies in ::/96
		return netip.Prefix{}, "", false
	}
	for _, r := range reserved {
		if r.network.Contains(addr) {
			return r.network, r.is, true
		}
	}
	return netip.Prefix{}, "", false
}

// Private returns the private, loopback or link-local network of addr, if addr has one.
func Private(addr netip.Addr) (network netip.Prefix, found bool) {
	addr = Plain(addr)
	for _, network := range private {
		if network.Contains(addr) {
			return network, true
		}
	}
	return netip.Prefix{}, false
}
