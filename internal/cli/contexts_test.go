package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/proto/certs/certstest"
	"github.com/msghandler/msghandler/test/must"
)

// writeContexts writes contexts.yaml, and returns the environment that names it.
func writeContexts(t *testing.T, text string) (env []string, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "contexts.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	return []string{"MSGHANDLER_CONTEXTS=" + file}, file
}

func TestContextNamesTheCoordinator(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	env, file := writeContexts(t, "# mine\ncontexts:\n"+
		"  here: {server: \""+c.addr+"\"}\n  away: {server: \"127.0.0.1:1\"}\n")
	run(env, "context", "list").want(t, 0, "CURRENT   CONTEXT   SERVER ", "")
	run(env, "context", "list", "--output=json").want(t, 0, `      "name": "here",
      "current": false,
      "server": "`+c.addr+`",
      "tls": false
`, "")
	run(env, "stats", "--context=here").want(t, 0, "STATE", "")
	run(append(env, "MSGHANDLER_CONTEXT=away"), "stats").want(t, 1, "", "cannot reach the coordinator at 127.0.0.1:1")
	run(env, "stats", "--context=gone").want(t, 2, "", `has no context "gone"; it has: away, here`)
	run(env, "stats", "--context=here", "--server=127.0.0.1:2").want(t, 2, "", "write one of them")
	run(env, "context", "use", "gone").want(t, 2, "", "has no context")

	run(env, "context", "use", "here").want(t, 0, "commands talk to here", "")
	content, err := os.ReadFile(file)
	must.Succeed(t, err)
	if text := string(content); !strings.Contains(text, "current: here\n") || !strings.Contains(text, "# mine\n") {
		t.Errorf("the file is now\n%s", text)
	}
	run(env, "stats").want(t, 0, "STATE", "")
	// A server or a configuration names another coordinator, which must not get the context's token.
	run(env, "stats", "--server=127.0.0.1:2").want(t, 1, "", "127.0.0.1:2")
	run(append(env, "MSGHANDLER_GRPC_ADDR=127.0.0.1:3"), "stats").want(t, 1, "", "127.0.0.1:3")
}

// A typed context is another installation than that of the environment.
func TestTypedContextNeedsNoEnvironment(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	env, _ := writeContexts(t, "contexts: {here: {server: \""+c.addr+"\"}}\n")
	env = append(env, "MSGHANDLER_TLS=true", "MSGHANDLER_TLS_CA=/missing", "MSGHANDLER_TOKEN=mh_another")
	run(env, "stats", "--context=here").want(t, 0, "STATE", "")
	run(append(env, "MSGHANDLER_CONTEXT=here"), "stats").want(t, 2, "", "/missing")
}

// A proxy before the coordinator may have its TLS.
func TestEnvironmentSwitchesTLSOff(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	cert, key := certstest.NewAuthority(t).Issue("127.0.0.1")
	env := []string{
		"MSGHANDLER_GRPC_ADDR=" + c.addr, "MSGHANDLER_GRPC_TLS_CERT=" + cert, "MSGHANDLER_GRPC_TLS_KEY=" + key,
	}
	run(env, "stats").want(t, 1, "", "its TLS settings")
	run(append(env, "MSGHANDLER_TLS=false"), "stats").want(t, 0, "STATE", "")
	run(append(env, "MSGHANDLER_TLS=false"), "stats", "--tls").want(t, 1, "", "its TLS settings")
}

func TestExposedContextsAreRefused(t *testing.T) {
	t.Parallel()
	env, file := writeContexts(t, "contexts: {here: {server: \"127.0.0.1:1\", token_file: t}}\n")
	token := filepath.Join(filepath.Dir(file), "t")
	must.Succeed(t, os.WriteFile(token, []byte("mh_x\n"), 0o600))
	must.Succeed(t, os.Chmod(token, 0o644))
	run(env, "stats", "--context=here").want(t, 2, "", "may read "+token+", the token of context here")
	must.Succeed(t, os.Chmod(file, 0o666))
	run(env, "stats", "--context=here").want(t, 2, "", "may write "+file)
}
