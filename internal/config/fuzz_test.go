package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/test/must"
)

// place matches a position in a file.
var place = regexp.MustCompile(`line \d+|:\d+`)

// checkError demands that each problem names its key and its source.
func checkError(t *testing.T, err error) {
	t.Helper()
	var all *config.Error
	if !errors.As(err, &all) {
		if !place.MatchString(err.Error()) {
			t.Errorf("names no line: %v", err)
		}
		return
	}
	if len(all.Problems) == 0 {
		t.Error("an error without a problem")
	}
	for _, p := range all.Problems {
		if p.What == "" || p.Source == "" || p.Key == "" && !place.MatchString(p.Source) {
			t.Errorf("names neither key nor line: %+v", p)
		}
	}
}

// FuzzFile reads any bytes as a configuration file.
func FuzzFile(f *testing.F) {
	example, err := os.ReadFile(filepath.Join("..", "..", "config.example.yaml"))
	must.Succeed(f, err)
	f.Add(example)
	for _, text := range []string{
		"", "\n", "---", "--- \n---\n", "# nothing\n", "redis:\n", "redis: x\n", "a: b\n", "- 1\n", "confirm:\n  after: 1s\n",
		"confirm.after: 1s\nconfirm: {after: 2s}\n", "confirm: {backoff: [1s, 2s]}\n", "confirm: {backoff: [[1s]]}\n",
		"producers: {orders: {target: 'orders:9000', trust: true}, a.b: {trust: no}}\n", "producers: {'': {target: x}}\n",
		"redis: &r {prefix: a}\nsend: *r\n", "producers: &p {a: *p}\n", "producers: &p {a: &q {b: *p, c: *q}}\n",
		"producers: {a: &a {x: [1]}, b: {<<: *a}}\n", "\x00", "\xff\xfea", "a: \"\\xZZ\"\n", "a: [\n", "\t- a",
		"%YAML 9.9\n---\n",
		"? [a]\n: b\n", "? {a: b}\n", "redis: !!binary x\n", "*a", "&a a: *a\n", "{{{{{{{{",
		"limits: {body: 9999999999GiB}\n",
	} {
		f.Add([]byte(text))
	}
	path := filepath.Join(f.TempDir(), "config.yaml")
	f.Fuzz(func(t *testing.T, content []byte) {
		must.Succeed(t, os.WriteFile(path, content, 0o600))
		if _, err := config.Load(config.Sources{File: path}); err != nil {
			checkError(t, err)
		}
	})
}

// FuzzValue gives any text to any key, from the environment and from the command line. Both must agree whether the text
// is valid.
func FuzzValue(f *testing.F) {
	keys := config.Keys()
	for i, key := range keys {
		f.Add(uint8(i), key.Default)
	}
	for _, text := range []string{
		"", ",", " ,", "-1", "1e9", "9223372036854775807", "1s,", "-0s", "\x00", "redis:",
		"a,b://c",
	} {
		f.Add(uint8(len(text)), text)
	}
	f.Fuzz(func(t *testing.T, n uint8, text string) {
		key := keys[int(n)%len(keys)]
		one, errFlag := config.Load(config.Sources{Flags: map[string]string{key.Name: text}})
		if errFlag != nil {
			checkError(t, errFlag)
		}
		if text == "" || strings.Contains(text, "\x00") {
			return // An empty variable counts as not set, and a variable cannot hold a NUL.
		}
		other, errEnv := config.Load(config.Sources{Env: []string{key.Env() + "=" + text}})
		if errEnv != nil {
			checkError(t, errEnv)
		}
		if (errFlag == nil) != (errEnv == nil) || errFlag == nil && one.Redis.URL != other.Redis.URL {
			t.Errorf("%s = %q: %v from the command line, %v from the environment", key.Name, text, errFlag, errEnv)
		}
	})
}

// FuzzVariable: any variable with our prefix is a key, or the error names the variable.
func FuzzVariable(f *testing.F) {
	for _, name := range []string{
		"CONFIRM_AFTER", "PRODUCERS_ORDERS_TRUST", "PRODUCERS__TARGET", "PRODUCERS_TRUST", "",
		"_", "PORT_1",
	} {
		f.Add(name, "1s")
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		_, err := config.Load(config.Sources{Env: []string{"MSGHANDLER_" + name + "=" + text}})
		if err == nil {
			return
		}
		checkError(t, err)
		variable, _, _ := strings.Cut("MSGHANDLER_"+name+"=", "=")
		if !strings.Contains(err.Error(), variable) {
			t.Errorf("%q is not named: %v", variable, err)
		}
	})
}

// FuzzSecret: no error holds a password of a URL, for every other fault of the URL and every unescaped character in the
// password.
func FuzzSecret(f *testing.F) {
	for _, url := range [][3]string{
		{"redis://", "", "host:6379"},
		{"redis://user", "@", "host:x/0"},
		{"amqp://user", ",", "%zz"},
		{"amqp://user", "/", "host,amqp://other:1"},
		{"http://user", "?#", "host"},
		{"amqp:/user", ":", "host"},
		{"user", ",@", "host"},
		{"amqp://h:1,amqp://u", "", "h"},
	} {
		f.Add(true, url[0], url[1], url[2])
		f.Add(false, url[0], url[1], url[2])
	}
	// The first password looks like a port when a slash follows.
	const first, second = "4711", "Pa55w0rd"
	f.Fuzz(func(t *testing.T, redis bool, before, within, after string) {
		if strings.Contains(before, "@") ||
			strings.Contains(within+second+"@"+after, "://") && strings.Contains(within+after, ",") {
			return // The text may also be several URLs, so no part is certainly a password.
		}
		key := "amqp.url"
		if redis {
			key = "redis.url"
		}
		_, err := config.Load(
			config.Sources{Flags: map[string]string{key: before + ":" + first + within + second + "@" + after}},
		)
		if err != nil && (strings.Contains(err.Error(), first) || strings.Contains(err.Error(), second)) {
			t.Errorf("before %q, within %q, after %q: %v", before, within, after, err)
		}
	})
}
