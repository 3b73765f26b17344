package app_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

func TestStartWarnsOfExposedSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "redis-url")
	must.Succeed(t, os.WriteFile(path, []byte("redis://:hunter2@r"), 0o600))
	for _, c := range []struct {
		mode  os.FileMode
		allow string
		warns bool
	}{{0o644, "*.orders.svc:9000", true}, {0o640, "127.0.0.1:*", false}} {
		must.Succeed(t, os.Chmod(path, c.mode))
		log := &servers.Log{}
		a, err := app.New(t.Context(), settings(func(s *config.Config) {
			s.PrivateFiles = []config.PrivateFile{{Key: "redis.url_file", Path: path}}
			s.Callbacks.Allow = []string{c.allow}
		}), app.Deps{Logger: slog.New(slog.NewTextHandler(log, nil))})
		must.Succeed(t, err)
		must.Succeed(t, a.Stop(t.Context()))
		for _, warning := range []string{"may read a file with secrets", "callbacks.networks is empty"} {
			if strings.Contains(log.String(), warning) != c.warns {
				t.Errorf("%v, %s: want %q: %t; the log says\n%s", c.mode, c.allow, warning, c.warns, log)
			}
		}
	}
}
