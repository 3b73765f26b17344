package commandline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/test/must"
)

func TestTokenComesFromFileOrEnvironment(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	must.Succeed(t, os.WriteFile(file, []byte("# of ci\n5ecret-of-the-file\n"), 0o600))
	const (
		own, inFile = "MSGHANDLER_TOKEN=5ecret-of-the-variable", "MSGHANDLER_TOKEN_FILE="
		loopback    = "127.0.0.1:9090"
	)
	for name, c := range map[string]struct {
		env     []string
		flag    string
		server  string
		secured bool
		want    string
		wrong   string
	}{
		"none":            {server: "far:9090"},
		"variable":        {env: []string{own}, server: loopback, want: "5ecret-of-the-variable"},
		"file":            {env: []string{inFile + file}, server: loopback, want: "5ecret-of-the-file"},
		"flag":            {flag: file, env: []string{own}, server: loopback, want: "5ecret-of-the-file"},
		"both":            {env: []string{own, inFile + file}, server: loopback, wrong: "are both set"},
		"missing":         {flag: file + ".none", server: loopback, wrong: "token.none"},
		"short":           {env: []string{"MSGHANDLER_TOKEN=5ecret"}, server: loopback, wrong: "MSGHANDLER_TOKEN has fewer"},
		"with TLS":        {env: []string{own}, server: "far:9090", secured: true, want: "5ecret-of-the-variable"},
		"without TLS":     {env: []string{own}, server: "far:9090", wrong: "shown over TLS only"},
		"loopback's name": {env: []string{own}, server: "dns:///localhost:9090", want: "5ecret-of-the-variable"},
		"in capitals":     {env: []string{own}, server: "dns:///LOCALHOST:9090", wrong: "shown over TLS only"},
	} {
		flags := TokenFlags{TokenFile: c.flag}
		got, err := flags.Token(&Session{Process: Process{Env: c.env}}, c.server, c.secured)
		if got != c.want || (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) ||
			err != nil && strings.Contains(err.Error(), "5ecret") {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}
