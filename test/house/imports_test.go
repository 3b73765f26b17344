package house

import (
	"slices"
	"strings"
	"testing"
)

// roomsFile says which packages of ours a room may import.
const roomsFile = "rooms.txt"

// rule is a line of roomsFile; its first words match rooms.
type rule struct {
	rooms, may []string
	why        string
}

// readRules reads roomsFile, and puts the members of a set in place of its name.
func readRules(t *testing.T) (rules []rule) {
	t.Helper()
	sets := map[string][]string{"NOTHING": nil}
	members := func(names string) (all []string) {
		for _, name := range strings.Fields(names) {
			if set, is := sets[name]; is {
				all = append(all, set...)
			} else {
				all = append(all, name)
			}
		}
		return all
	}
	text := strings.ReplaceAll(read(t, roomsFile), "\n  + ", " ")
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if name, set, is := strings.Cut(line, " = "); is {
			sets[name] = members(set)
		} else if why, is := strings.CutPrefix(line, "  "); is {
			rules[len(rules)-1].why = why
		} else if line != "" && line[0] != '#' {
			rooms, may, _ := strings.Cut(line, ": ")
			rules = append(rules, rule{rooms: members(rooms), may: members(may)})
		}
	}
	return rules
}

func TestRoomsImportOnlyWhatTheyMay(t *testing.T) {
	t.Parallel()
	rules := readRules(t)
	for _, p := range packages(t) {
		room := p.room()
		i := slices.IndexFunc(rules, func(r rule) bool { return in(room, r.rooms) })
		if i < 0 {
			t.Errorf("%s is in no line of %s: enter it, with what it may import and why", room, roomsFile)
			continue
		}
		for _, imported := range p.Imports {
			other, ours := strings.CutPrefix(imported, module+"/")
			if ours && !in(other, rules[i].may) && !in(other, []string{room + "/..."}) && !sameRoom(room, other) {
				t.Errorf("%s must not import %s: %s", room, other, rules[i].why)
			}
		}
	}
}

// sameRoom: rooms that consist of several packages, which may know each other.
func sameRoom(a, b string) bool {
	for _, room := range []string{
		"dev/demo", "dev/embedded", "internal/app", "internal/cli", "internal/console", "dev/bench", "examples",
	} {
		if in(a, []string{room + "/..."}) && in(b, []string{room + "/..."}) {
			return true
		}
	}
	return false
}

// free lists packages that a package must not even reach through others. links.txt has the libraries of the SDKs, and
// depguard the places of each library: here is what both leave open.
var free = []struct {
	room, prefix, why string
}{
	{"producer", "database/sql", "an importer of the SDK gets SQL only with the markers that are in it"},
	{"consumer", "database/sql", "an importer of the SDK gets SQL only with the inbox that is in it"},
	{"consumer", module + "/proto", "a consumer never talks to the coordinator"},
	{"internal/halfmsg", "github.com", "the domain is the standard library's and ours alone"},
	{"internal/halfmsg", "google.golang.org", "the domain is the standard library's and ours alone"},
	{"internal/confirmloop", "google.golang.org/grpc", "the loops see producers through halfmsg.Callbacks"},
	{"internal/server/submit", "google.golang.org", "batches and waits know no gRPC and no protobuf"},
	{"cmd/msghandler", module + "/dev", "the embedded servers, the demo and the load are programs of their own"},
	{"cmd/msghandler", "modernc.org", "SQLite is linked into the demos only: a coordinator calls databases"},
	{"msghandlertest", "github.com/nats-io/nats-server", "the tests of users need no server of NATS"},
}

func TestForbiddenDependenciesAreNotIndirect(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, rule := range free {
			if p.room() != rule.room {
				continue
			}
			for _, dep := range p.Deps {
				ours := under(dep, module) && !strings.HasPrefix(rule.prefix, module)
				if under(dep, rule.prefix) && !ours {
					t.Errorf("%s must not depend on %s, even through others: %s", rule.room, dep, rule.why)
				}
			}
		}
	}
}

// under says whether an import path is prefix, a package below it, or a major version of it.
func under(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// mostForeign is how many packages of others the service may link. OpenTelemetry, gRPC, protobuf and the clients of
// the brokers and databases have nearly all of them.
const mostForeign = 320

func TestTheServiceLinksFewPackages(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if p.room() != "cmd/msghandler" {
			continue
		}
		third := slices.DeleteFunc(slices.Clone(p.Deps), func(dep string) bool {
			return under(dep, module) || !thirdParty(dep)
		})
		figure(t, "third-party packages linked into cmd/msghandler: %d (at most %d)", len(third), mostForeign)
		if len(third) > mostForeign {
			t.Errorf("%s links %d packages of others, and %d at most: the service is to stay small", p.room(), len(third),
				mostForeign)
		}
	}
}

// thirdParty says whether a package is neither part of the standard library nor vendored by the standard library.
func thirdParty(path string) bool {
	domain, _, _ := strings.Cut(path, "/")
	return strings.Contains(domain, ".") && !strings.HasPrefix(path, "vendor/")
}
