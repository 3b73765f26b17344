package server_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/server"
	"github.com/msghandler/msghandler/test/threats"
)

// SECURITY.md names each method that answers everyone, each that needs the producer, and each that needs more than a
// viewer, and no others: the table of needs is where they come from.
func TestPolicyNamesWhatMethodsNeed(t *testing.T) {
	t.Parallel()
	of := map[string][]string{}
	for _, method := range open(t, func(c *server.Config) { c.Reflection = true }).Methods() {
		role, asProducer, isOpen, _ := server.NeedsOf(method)
		name := path.Base(method)
		switch {
		case isOpen:
			service := path.Dir(method)
			of["call without an identity"] = append(of["call without an identity"],
				service[strings.LastIndex(service, ".")+1:]+"."+name)
		case asProducer:
			of["send, submit or roll back"] = append(of["send, submit or roll back"], name)
		case role > access.Viewer:
			of["read bodies, retry or discard"] = append(of["read bodies, retry or discard"], name)
		}
	}
	for attack, methods := range of {
		slices.Sort(methods)
		named := slices.DeleteFunc(threats.Names(threats.Defence(t, attack)), func(name string) bool {
			return strings.Contains(name, "callers") // the keys that give a producer
		})
		if slices.Sort(named); !slices.Equal(named, slices.Compact(methods)) {
			t.Errorf("%s: the code has %q, and SECURITY.md %q", attack, slices.Compact(methods), named)
		}
	}
}
