package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/test/must"
)

// secret writes a file with a secret.
func secret(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	must.Succeed(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// Every key with a secret has a twin for a file with the secret, in the file, the environment and the flags.
func TestSecretsComeFromFiles(t *testing.T) {
	t.Parallel()
	for _, k := range config.Keys() {
		if _, twin := config.Find(k.Name + "_file"); k.Secret && !twin {
			t.Errorf("%s has no twin for a file", k.Name)
		}
	}
	dsn, token := secret(t, "postgres://h/d"), secret(t, "T0ken-of-the-webhook\r\n")
	c, err := config.Load(config.Sources{
		File: write(t, "redis: {url_file: "+secret(t, "redis://:hunter2@r:6379/0\n")+"}\n"+
			"outbox: {shop: {dsn_file: "+dsn+", producer: orders}}\n"),
		Env: []string{
			"MSGHANDLER_AMQP_URL_FILE=" + secret(t, "amqp://u:p@a:5672/\namqp://u:p@b:5672/\n"),
			"MSGHANDLER_BROKERS_EVENTS_URL_FILE=" + secret(t, "kafka://u:hunter2@k:9092"),
		},
		Flags: map[string]string{"events.webhook_token_file": token},
	})
	must.Succeed(t, err)
	if c.Redis.URL != "redis://:hunter2@r:6379/0" || c.Brokers["events"].URL != "kafka://u:hunter2@k:9092" ||
		!slices.Equal(c.AMQP.URLs, []string{"amqp://u:p@a:5672/", "amqp://u:p@b:5672/"}) ||
		c.Events.WebhookToken != "T0ken-of-the-webhook" || c.Outbox["shop"].DSN != "postgres://h/d" {
		t.Errorf("got %q, %q, %q, %q", c.Redis.URL, c.Brokers, c.AMQP.URLs, c.Events.WebhookToken)
	}
	if !slices.Contains(c.PrivateFiles, config.PrivateFile{Key: "events.webhook_token_file", Path: token}) ||
		len(c.PrivateFiles) != 5 {
		t.Errorf("the private files are %v", c.PrivateFiles)
	}
}

func TestBadSecretFilesAreNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ path, more, want string }{
		"missing":   {"/nowhere/secret", "", "no such file"},
		"directory": {t.TempDir(), "", "cannot be read"},
		"empty":     {secret(t, "\n"), "", "names an empty file"},
		"large":     {secret(t, strings.Repeat("hunter2", 10_000)), "", "more than 65536 bytes"},
		"malformed": {secret(t, "http://u:hunter2@h"), "", "holds a value that"},
		"both": {
			secret(t, "redis://:hunter2@r"), "MSGHANDLER_REDIS_URL=redis://:hunter2@s", "is set beside redis.url",
		},
	} {
		_, err := config.Load(config.Sources{Env: []string{"MSGHANDLER_REDIS_URL_FILE=" + c.path, c.more}})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "REDIS_URL_FILE") ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	_, err := config.Load(config.Sources{File: write(t, "brokers: {e: {url_file: /nowhere, dead_letter_exchange: x}}")})
	if err == nil || !strings.Contains(err.Error(), "brokers.e.url_file") {
		t.Errorf("of a broker: %v", err)
	}
	for file, want := range map[string]string{
		`brokers: {e: {url_file: ""}}`: "set brokers.e.url or brokers.e.url_file",
		`outbox: {o: {dsn_file: ""}}`:  "set outbox.o.dsn or outbox.o.dsn_file",
	} {
		if _, err := config.Load(config.Sources{File: write(t, file)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", file, err, want)
		}
	}
}

// The configuration file is private where a password stands in it.
func TestConfigurationWithPasswordIsPrivate(t *testing.T) {
	t.Parallel()
	for content, private := range map[string]bool{
		"redis: {url: 'redis://:hunter2@r:6379/0'}":                true,
		"redis: {url: 'redis://r:6379/0'}\nlog: {format: json}":    false,
		"amqp: {url: ['amqp://a/']}":                               false,
		"events: {webhook_token: T0ken-of-the-webhook}":            true,
		"brokers: {e: {url: 'kafka://u:hunter2@k'}}":               true,
		"outbox: {s: {dsn: 'postgres://u:p@h/d', producer: shop}}": true,
	} {
		path := write(t, content)
		c, err := config.Load(config.Sources{File: path})
		must.Succeed(t, err)
		if got := slices.Contains(c.PrivateFiles, config.PrivateFile{Path: path}); got != private {
			t.Errorf("%s: private %t", content, got)
		}
	}
}
