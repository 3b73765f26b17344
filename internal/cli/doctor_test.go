package cli_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
)

// doctorOfEmbedded is the command that examines embedded servers.
func doctorOfEmbedded(t *testing.T) []string {
	t.Helper()
	return []string{"doctor", "--redis.url=" + embeddedtest.Redis(t), "--amqp.url=" + embeddedtest.Broker(t)}
}

func TestDoctorUsesItsFlags(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t) // the address has no health service, as it is no coordinator
	env := []string{
		"MSGHANDLER_GRPC_ADDR=127.0.0.1:1", "MSGHANDLER_REDIS_URL=" + embeddedtest.Redis(t),
		"MSGHANDLER_AMQP_URL=" + embeddedtest.Broker(t),
	}
	args := []string{"doctor", "--callbacks.allow=127.0.0.1:*"}
	run(env, args...).want(t, 0, "none answers at 127.0.0.1:1: ", "")
	args = append(args, "--grpc.addr="+c.addr)
	run(env, args...).want(t, 0, "the server at "+c.addr+" is no coordinator: ", "")
	run(env, append(args, "--server=127.0.0.1:2")...).want(t, 0, "none answers at 127.0.0.1:2: ", "")
}

func TestDoctorOnlyWarnsAboutDefaults(t *testing.T) {
	t.Parallel()
	args := append(doctorOfEmbedded(t), "--server=127.0.0.1:1")
	run(nil, args...).want(t, 0, "no configuration was given: the defaults of callbacks.allow are examined", "")
	run([]string{"MSGHANDLER_CONFIRM_TIMEOUT=2s"}, args...).
		want(t, 0, "OK        configuration   nothing that endangers messages", "")
	run(nil, "verify-producer", "orders", "127.0.0.1:1").want(t, 4, "connection refused", "orders was not examined")
}

func TestDoctorFailsOnTheChosenSeverity(t *testing.T) {
	t.Parallel()
	warned := append(doctorOfEmbedded(t), "--server=127.0.0.1:1")
	troubled := append(slices.Clone(warned), "--callbacks.allow=127.0.0.1:*", "--producer=orders=127.0.0.1:1")
	for _, c := range []struct {
		args   []string
		failOn string
		status int
		err    string
	}{
		{warned, "trouble", 0, ""},
		{warned, "warning", 1, "there are warnings"},
		{warned, "never", 0, ""},
		{troubled, "trouble", 1, "there is trouble"},
		{troubled, "warning", 1, "there is trouble"},
		{troubled, "never", 0, ""},
		{warned, "note", 2, "--fail-on must be one of"},
	} {
		got := run(nil, append(c.args, "--fail-on="+c.failOn)...)
		if got.status != c.status || !strings.Contains(got.err, c.err) {
			t.Errorf("%s of %v: status %d, %s", c.failOn, c.args, got.status, got.err)
		}
	}
}

func TestFindingsNameTheirPage(t *testing.T) {
	t.Parallel()
	const address = "https://github.com/msghandler/msghandler/blob/main/"
	args := append(doctorOfEmbedded(t), "--server=127.0.0.1:1")
	run(nil, args...).want(t, 0, "page: "+address+"docs/reference/findings.md#coordinator-away", "")
	run(nil, append(args, "--output=json")...).want(t, 0, "docs/reference/findings.md#coordinator-away", "")
	if _, err := os.Stat("../../docs/reference/findings.md"); err != nil {
		t.Error(err)
	}
}
