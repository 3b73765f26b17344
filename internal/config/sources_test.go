package config_test

import (
	"slices"
	"testing"

	"github.com/msghandler/msghandler/internal/config"
)

func TestDefaultsListsUnsetSections(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sources config.Sources
		want    []string
	}{
		"nothing":  {config.Sources{}, []string{"callbacks", "redis", "amqp"}},
		"file":     {config.Sources{File: "msghandler.yaml"}, nil},
		"variable": {config.Sources{Env: []string{"MSGHANDLER_REDIS_URL=redis://r:6379"}}, nil},
		"other variables": {
			config.Sources{Env: []string{"MSGHANDLER_SERVER=a:1", "HOME=/", "MSGHANDLER_AMQP_URL="}},
			[]string{"callbacks", "redis", "amqp"},
		},
		"flag": {
			config.Sources{Flags: map[string]string{"redis.url": "redis://r:6379"}},
			[]string{"callbacks", "amqp"},
		},
		"flag of no server": {
			config.Sources{Flags: map[string]string{"confirm.timeout": "1s"}},
			[]string{"callbacks", "redis", "amqp"},
		},
	} {
		if got := c.sources.Defaults("callbacks", "redis", "amqp"); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
