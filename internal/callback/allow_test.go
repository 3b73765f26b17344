package callback

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/must"
)

// everywhere is the widest possible callbacks.networks.
var everywhere = []string{"0.0.0.0/0", "::/0"}

// dial judges an address that orders.svc:9000 has resolved to, or that the target names itself.
func dial(t testing.TB, networks []string, text, to string) error {
	t.Helper()
	r, err := newRules([]string{"*:*", "10.1.2.3:*", "[fd00:ec2::254]:*"}, networks)
	must.Succeed(t, err)
	r.own = func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort("[::]:9090")} }
	read, err := parseTarget(text)
	must.Succeed(t, err)
	return r.control(read)("tcp", to, nil)
}

func TestReservedAddressesAreNeverCalled(t *testing.T) {
	t.Parallel()
	for name, host := range map[string]string{
		"metadata": "169.254.169.254", "metadata of containers": "169.254.170.2", "link-local": "169.254.0.1",
		"metadata of AWS": "fd00:ec2::254", "metadata of Alibaba": "100.100.100.200", "metadata of Azure": "168.63.129.16",
		"metadata of Oracle": "192.0.0.192", "metadata of Google": "fd20:ce::254", "metadata of OpenStack": "fe80::a9fe:a9fe",
		"mapped": "::ffff:169.254.169.254", "NAT64": "64:ff9b::a9fe:a9fe", "NAT64 of Alibaba": "64:ff9b::100.100.100.200",
		"local NAT64": "64:ff9b:1::a9fe:a9fe", "local NAT64, /48": "64:ff9b:1:a9fe:a9:fe00::", "6to4": "2002:a9fe:a9fe::1",
		"Teredo": "2001:0:1:2::5601:5601", "compatible": "::169.254.169.254", "translated": "::ffff:0:169.254.169.254",
		"assignments": "192.0.0.1", "benchmarks": "198.19.255.255", "reserved": "240.0.0.1", "broadcast": "255.255.255.255",
		"multicast": "224.0.0.1", "multicast of IPv6": "ff02::1", "unspecified": "0.0.0.0", "unspecified of IPv6": "::",
		"this host": "0.1.2.3", "NAT64 of unspecified": "64:ff9b::",
	} {
		addr := netip.MustParseAddr(host)
		for _, text := range []string{"orders.svc:9000", netip.AddrPortFrom(addr, 9000).String()} {
			err := dial(t, everywhere, text, netip.AddrPortFrom(addr, 9000).String())
			if !errors.Is(err, halfmsg.ErrForbidden) || !strings.Contains(err.Error(), "never called") {
				t.Errorf("%s by %s: got %v", name, text, err)
			}
		}
	}
	if err := dial(t, nil, "[fd00:ec2::254]:9000", "[fd00:ec2::254]:9000"); err == nil {
		t.Error("callbacks.allow has allowed a reserved address")
	}
}

func TestPrivateNetworksMustBeNamed(t *testing.T) {
	t.Parallel()
	const byName = "orders.svc:9000"
	for name, c := range map[string]struct {
		networks         []string
		target, to, want string
	}{
		"public":               {nil, byName, "203.0.113.7:9000", ""},
		"public IPv6":          {nil, byName, "[2001:db8::1]:9000", ""},
		"public NAT64":         {nil, byName, "[64:ff9b::203.0.113.7]:9000", ""},
		"beside the 6to4":      {nil, byName, "[2003::1]:9000", ""},
		"10":                   {nil, byName, "10.1.2.3:9000", "add 10.0.0.0/8"},
		"172":                  {nil, byName, "172.31.0.1:9000", "add 172.16.0.0/12"},
		"192":                  {nil, byName, "192.168.1.1:9000", "add 192.168.0.0/16"},
		"100":                  {nil, byName, "100.64.0.1:9000", "add 100.64.0.0/10"},
		"ULA":                  {nil, byName, "[fd12::1]:9000", "add fc00::/7"},
		"loopback":             {nil, byName, "127.1.2.3:9000", "add 127.0.0.0/8"},
		"loopback of IPv6":     {nil, byName, "[::1]:9000", "add ::1/128"},
		"link-local of IPv6":   {nil, byName, "[fe80::1%eth0]:9000", "add fe80::/10"},
		"mapped":               {nil, byName, "[::ffff:10.1.2.3]:9000", "add 10.0.0.0/8"},
		"private NAT64":        {nil, byName, "[64:ff9b::10.1.2.3]:9000", "add 10.0.0.0/8"},
		"named":                {[]string{"10.0.0.0/8"}, byName, "10.1.2.3:9000", ""},
		"named, by NAT64":      {[]string{"10.0.0.0/8"}, byName, "[64:ff9b::10.1.2.3]:9000", ""},
		"another is named":     {[]string{"10.2.0.0/16"}, byName, "10.1.2.3:9000", "add 10.0.0.0/8"},
		"public, not named":    {[]string{"10.0.0.0/8"}, byName, "203.0.113.7:9000", "add 203.0.113.7/32"},
		"literal":              {nil, "10.1.2.3:9000", "10.1.2.3:9000", ""},
		"literal, not allowed": {nil, "10.1.2.4:9000", "10.1.2.4:9000", "add 10.0.0.0/8"},
		"own port":             {everywhere, byName, "127.0.0.1:9090", "listener of this coordinator"},
		"own port, mapped":     {everywhere, byName, "[::ffff:127.0.0.2]:9090", "listener of this coordinator"},
		"own port, IPv6":       {everywhere, byName, "[::1]:9090", "listener of this coordinator"},
		"own port elsewhere":   {everywhere, byName, "203.0.113.7:9090", ""},
	} {
		err := dial(t, c.networks, c.target, c.to)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// FuzzConnectedAddress: no form of writing an IPv4 address gives more than the address itself.
func FuzzConnectedAddress(f *testing.F) {
	for _, seed := range []string{"169.254.169.254", "100.100.100.200", "127.0.0.1", "10.0.0.1", "8.8.8.8"} {
		bytes := netip.MustParseAddr(seed).As4()
		f.Add(bytes[0], bytes[1], bytes[2], bytes[3], true)
	}
	f.Fuzz(func(t *testing.T, a, b, c, d byte, all bool) {
		var networks []string
		if all {
			networks = everywhere
		}
		judge := func(addr netip.Addr) error {
			return dial(t, networks, "orders.svc:9000", netip.AddrPortFrom(addr, 9000).String())
		}
		plain := netip.AddrFrom4([4]byte{a, b, c, d})
		allowed := judge(plain) == nil
		for name, form := range map[string][16]byte{
			"mapped": {10: 0xff, 11: 0xff, 12: a, 13: b, 14: c, 15: d},
			"NAT64":  {0: 0, 1: 0x64, 2: 0xff, 3: 0x9b, 12: a, 13: b, 14: c, 15: d},
		} {
			if err := judge(netip.AddrFrom16(form)); (err == nil) != allowed {
				t.Errorf("%s is allowed: %t; %s: %v", plain, allowed, name, err)
			}
		}
		for name, form := range map[string][16]byte{
			"local NAT64": {0: 0, 1: 0x64, 2: 0xff, 3: 0x9b, 5: 1, 12: a, 13: b, 14: c, 15: d},
			"6to4":        {0: 0x20, 1: 0x02, 2: a, 3: b, 4: c, 5: d},
			"Teredo":      {0: 0x20, 1: 0x01, 12: ^a, 13: ^b, 14: ^c, 15: ^d},
			"translated":  {8: 0xff, 9: 0xff, 12: a, 13: b, 14: c, 15: d},
		} {
			if judge(netip.AddrFrom16(form)) == nil {
				t.Errorf("%s by %s is allowed", plain, name)
			}
		}
	})
}
