package threats_test

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/test/threats"
)

// Each actor has a row, and each row an actor and a test. test/house looks for the tests.
func TestActorsHaveRowsAndTests(t *testing.T) {
	t.Parallel()
	var actors []string
	for _, found := range regexp.MustCompile(`(?m)^- \*([^*]+)\* `).FindAllStringSubmatch(threats.Policy(t), -1) {
		actors = append(actors, strings.ToLower(found[1]))
	}
	var acting []string
	for _, row := range threats.Rows(t) {
		acting = append(acting, row.Actor)
		if !strings.Contains(row.Tests, "`Test") {
			t.Errorf("no test shows: %s cannot %s", row.Actor, row.Attack)
		}
	}
	slices.Sort(actors)
	slices.Sort(acting)
	if acting = slices.Compact(acting); len(actors) == 0 || !slices.Equal(actors, acting) {
		t.Errorf("the actors are %q, and the rows have %q", actors, acting)
	}
}

// The row names exactly the keys that let a listener start where other machines reach it.
func TestPolicyNamesWhatIdentifies(t *testing.T) {
	t.Parallel()
	sets := map[string]func(c *config.Config){
		"grpc.tls_client_ca": func(c *config.Config) { c.GRPC.Certificates.CA = "ca.pem" },
		"access.token_file":  func(c *config.Config) { c.Access.TokenFile = "tokens" },
		"access.oidc_issuer": func(c *config.Config) { c.Access.OIDC.Issuer = "https://id.example.com" },
		"http.user_header":   func(c *config.Config) { c.HTTP.UserHeader = "X-User" },
	}
	of := map[string][]string{}
	defence := threats.Defence(t, "use a coordinator that was opened by mistake")
	for _, clause := range strings.Split(defence, "reach ")[1:] {
		names := threats.Names(clause)
		listener := names[0]
		of[listener] = slices.DeleteFunc(names, func(name string) bool { return sets[name] == nil })
	}
	for _, listener := range []string{"grpc.addr", "http.addr"} {
		var identify []string
		for key, set := range sets {
			c := &config.Config{}
			c.GRPC.Addr, c.HTTP.Addr = "0.0.0.0:9090", "0.0.0.0:9091"
			set(c)
			if !strings.Contains(strings.Join(c.Exposed(), " "), listener) {
				identify = append(identify, key)
			}
		}
		slices.Sort(identify)
		if named := slices.Sorted(slices.Values(of[listener])); !slices.Equal(named, identify) {
			t.Errorf("%s is identified by %q, and SECURITY.md names %q", listener, identify, named)
		}
	}
}

// The row names exactly the fields by which a producer lets callers in, and its zero value lets none in.
func TestPolicyNamesWhoMayConfirm(t *testing.T) {
	t.Parallel()
	var fields []string
	for field := range reflect.TypeFor[producer.Coordinators]().Fields() {
		fields = append(fields, field.Name)
	}
	named := threats.Names(threats.Defence(t, "roll back a running transaction by calling `Confirm`"))
	for _, field := range fields {
		if !slices.Contains(named, field) {
			t.Errorf("producer.Coordinators.%s lets callers in, and SECURITY.md does not name the function", field)
		}
	}
	for _, name := range named {
		if !slices.Contains(append(fields, "Coordinators", "New", "CallbackTarget"), name) {
			t.Errorf("SECURITY.md names %s, which lets no caller in", name)
		}
	}
	if _, err := producer.New(producer.Config{CallbackTarget: "orders:7001"}); err == nil ||
		!strings.Contains(err.Error(), "Coordinators") {
		t.Errorf("a CallbackTarget without Coordinators: %v", err)
	}
}
