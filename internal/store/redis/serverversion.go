package redis

import (
	"fmt"
	"strings"

	"github.com/msghandler/msghandler/internal/ground/versions"
)

// serverVersion is a server's product and version, from INFO.
type serverVersion struct {
	server versions.Server
	number versions.Version
	text   string
}

// serverVersionOf reads the section "server" of INFO. The result is false for a server without a version. Valkey also
// names Redis 7.2.4 there, for older clients.
func serverVersionOf(info map[string]string) (v serverVersion, known bool) {
	v.server, v.text = versions.Redis, info["redis_version"]
	if own := info["valkey_version"]; own != "" {
		v.server, v.text = versions.Valkey, own
	}
	v.number, known = versions.Parse(v.text)
	return v, known
}

func (v serverVersion) String() string { return v.server.Name + " " + v.text }

// supported reports a version older than the supported versions.
func (f *found) supported(v serverVersion) {
	if !v.server.TooOld(v.number) {
		return
	}
	why := "msghandler is not tested with it"
	if v.server.Name == versions.Redis.Name { // scripts have no flag allow-oom there
		why = "when memory is full it also stops the work that would free some"
	}
	f.add("old", Warning, fmt.Sprintf("is %s, older than %v", v, v.server.Oldest), why,
		fmt.Sprintf("upgrade to %s %v or later", v.server.Name, v.server.Oldest))
}

// notes finds versions that may be fine but are worth a look.
func (f *found) notes(v serverVersion) {
	if v.server.Untested(v.number) {
		f.add("new", Note, fmt.Sprintf("is %s, newer than %v", v, v.server.Newest), "msghandler is not tested with it",
			"try it with a copy of the data before producers depend on it")
	}
	if hasLuaHole(v) {
		f.add("lua-hole", Note, fmt.Sprintf("is %s; upstream, this version has CVE-2025-49844", v),
			"a user who may run Lua scripts may run any code in the server; msghandler's scripts do not",
			"check the server's package: distributions may have patched it without another version; else upgrade to "+
				luaFixesOf(v.server))
	}
}

// luaFixes are the first versions without CVE-2025-49844, one for each maintained minor version. Minor versions between
// them never got a fix; later versions never had the hole.
var luaFixes = map[string][]versions.Version{
	versions.Redis.Name:  {{6, 2, 20}, {7, 2, 11}, {7, 4, 6}, {8, 0, 4}, {8, 2, 2}},
	versions.Valkey.Name: {{7, 2, 11}, {8, 0, 6}, {8, 1, 4}},
}

func hasLuaHole(v serverVersion) bool {
	fixes := luaFixes[v.server.Name]
	for _, fix := range fixes {
		if fix[0] == v.number[0] && fix[1] == v.number[1] {
			return v.number.Before(fix)
		}
	}
	return v.number.Before(fixes[len(fixes)-1])
}

// luaFixesOf lists the fixed versions of a server that are supported.
func luaFixesOf(server versions.Server) string {
	var fixed []string
	for _, fix := range luaFixes[server.Name] {
		if !server.TooOld(fix) {
			fixed = append(fixed, fix.String())
		}
	}
	return server.Name + " " + strings.Join(fixed, ", ") + " or later"
}
