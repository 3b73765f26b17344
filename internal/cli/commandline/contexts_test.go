package commandline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeInstallation writes contexts.yaml with an installation "there" and its token into a directory.
func writeInstallation(t *testing.T, dir, token string) (file string) {
	t.Helper()
	file = filepath.Join(dir, "contexts.yaml")
	for path, text := range map[string]string{
		file:                              "contexts: {there: {server: \"127.0.0.1:1\", token_file: there.token}}\n",
		filepath.Join(dir, "there.token"): token + "\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// A token of the environment may be another installation's, and each coordinator learns what it is shown.
func TestTypedContextHasItsOwnToken(t *testing.T) {
	t.Parallel()
	own, others := strings.Repeat("own", 20), strings.Repeat("other", 20)
	env := []string{"MSGHANDLER_CONTEXTS=" + writeInstallation(t, t.TempDir(), own), "MSGHANDLER_TOKEN=" + others}
	for _, c := range []struct {
		typed, want string
		env         []string
	}{{"there", own, env}, {"", others, append(env, "MSGHANDLER_CONTEXT=there")}} {
		flags := CoordinatorFlags{Context: c.typed}
		got, err := flags.Coordinator(&Session{Process: Process{Env: c.env}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := got.Token.GetRequestMetadata(t.Context())
		if err != nil || got.Address != "127.0.0.1:1" || shown["authorization"] != "Bearer "+c.want {
			t.Errorf("--context=%s: %s gets %v, %v", c.typed, got.Address, shown, err)
		}
	}
}

// The working directory may be another user's.
func TestContextsBelowCwdAreUnread(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	below := filepath.Join(dir, ".config", "msghandler")
	if err := os.MkdirAll(below, 0o700); err != nil {
		t.Fatal(err)
	}
	writeInstallation(t, below, strings.Repeat("own", 20))
	for _, env := range [][]string{nil, {"XDG_CONFIG_HOME=.config"}} {
		s := &Session{Process: Process{Env: env}}
		if all, err := s.OpenContexts(); err != nil || len(all.Contexts) != 0 {
			t.Errorf("%v: read %v, %v", env, all, err)
		}
	}
	s := &Session{Process: Process{Env: []string{"HOME=" + dir}}}
	if all, err := s.OpenContexts(); err != nil || len(all.Contexts) != 1 {
		t.Errorf("below HOME: read %v, %v", all, err)
	}
}
