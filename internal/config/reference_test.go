package config_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/config"
)

//go:generate go test -run TestTheReferenceIsFresh -update .

var update = flag.Bool("update", false, "write docs/configuration.md and config.example.yaml anew")

func TestTheReferenceIsFresh(t *testing.T) {
	for path, want := range map[string]string{
		"../../docs/configuration.md": page(),
		"../../config.example.yaml":   example(),
	} {
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path) //nolint:gosec // the paths stand above
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s differs from internal/config/keys.go; run: make generate", path)
		}
	}
}

// TestTheExampleLoads reads the example as it is, and once more with every line switched on: both must give the defaults.
func TestTheExampleLoads(t *testing.T) {
	t.Parallel()
	if _, err := config.Load(config.Sources{File: write(t, example())}); err != nil {
		t.Error(err)
	}
	var all strings.Builder
	for line := range strings.Lines(example()) {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		if key, is := strings.CutPrefix(line[len(indent):], "#"); is && !strings.HasPrefix(key, " ") {
			line = indent + key
		}
		all.WriteString(line)
	}
	c, err := config.Load(config.Sources{File: write(t, all.String())})
	if err != nil {
		t.Fatalf("%v\n%s", err, all.String())
	}
	if c.Producers["orders"].Target == "" {
		t.Error("the example's producer is not read")
	}
}

const intro = `# Configuration

This page is made from ` + "`internal/config/keys.go`" + ` by ` + "`make generate`" + `; a test fails when they differ.

Every key can be set in four places; the first that has it wins:

1. a flag of ` + "`msghandler serve`" + `: ` + "`--confirm.after=2s`" + ` (` + "`--set producers.orders.target=orders:9000`" + ` for single producers),
2. the environment: ` + "`MSGHANDLER_`" + ` and the key, with dots as underscores: ` + "`MSGHANDLER_CONFIRM_AFTER=2s`" + `,
3. the YAML file named by ` + "`--config`" + ` or ` + "`MSGHANDLER_CONFIG`" + `; keys are nested (` + "`confirm:`" + ` and below it ` + "`after: 2s`" + `) or written
   with dots (` + "`confirm.after: 2s`" + `); ` + "[config.example.yaml](../config.example.yaml)" + ` holds them all,
4. the default.

Durations carry their unit (` + "`500ms`, `6s`, `2m`, `1h`" + `), sizes may (` + "`1MiB`, `64KiB`, `65536`" + `). Lists are YAML lists, or one text with
commas. An environment variable that is empty counts as not set.

Everything that is wrong is told at once, before anything is opened, with the key, the place (file and line, variable or
flag) and what to do. Unknown keys are errors, and so are unknown variables that begin with ` + "`MSGHANDLER_`" + `, but for
` + "`MSGHANDLER_CONFIG`, `MSGHANDLER_SERVER`, `MSGHANDLER_TLS*`" + ` and what Kubernetes injects for a service of that name (` + "`MSGHANDLER_SERVICE_*`,\n`MSGHANDLER_PORT*`" + `).

`

const outro = `## producers

What is set for single producers, by their names.

| key | variable | default | meaning |
|---|---|---|---|
| ` + "`producers.NAME.target` | `MSGHANDLER_PRODUCERS_NAME_TARGET`" + ` | none | The callback target of a producer whose messages name none: ` +
	"`host:port` or `dns:///host:port`" + `. It must match ` + "`callbacks.allow`" + `. |
| ` + "`producers.NAME.trust` | `MSGHANDLER_PRODUCERS_NAME_TRUST` | `submit.trust`" + ` | Take this producer's Submit itself as the verdict. |
| ` + "`producers.NAME.callers` | `MSGHANDLER_PRODUCERS_NAME_CALLERS` | `grpc.callers`" + ` | Whose certificates may call as this producer. |
| ` + "`producers.NAME.tls` | `MSGHANDLER_PRODUCERS_NAME_TLS` | `callbacks.tls`" + ` | Call this producer with TLS. |
| ` + "`producers.NAME.token_file` | `MSGHANDLER_PRODUCERS_NAME_TOKEN_FILE` | `callbacks.token_file`" + ` | The file with the token that this producer is shown; ` +
	"`\"\"`" + `, in the file, shows it none. |

A variable cannot hold every name that a producer may have: ` + "`ORDERS_EU`" + ` means the producer of the file whose name gives that
in capitals with dots and dashes as underscores (` + "`orders-eu`, `Orders.EU`" + `); when the file has none, it means ` + "`orders_eu`" + `, and when it has several, it is refused. Set
names with capitals, dots or dashes in the file or with ` + "`--set`" + `.

## Environment of the admin commands

| variable | meaning |
|---|---|
| ` + "`MSGHANDLER_CONFIG`" + ` | The configuration file, as ` + "`--config`" + `. |
| ` + "`MSGHANDLER_SERVER`" + ` | The coordinator that doctor and all commands about messages talk to, as ` + "`--server`" + `; by default ` + "`grpc.addr`" + `. |
| ` + "`MSGHANDLER_TLS`" + ` | ` + "`true`" + `: talk to it with TLS, as ` + "`--tls`" + `. |
| ` + "`MSGHANDLER_TLS_CA`, `_CERT`, `_KEY`, `_NAME`" + ` | As ` + "`--tls-ca`, `--tls-cert`, `--tls-key` and `--tls-name`" + `, each of which means ` + "`--tls`" + `. |
`

func page() string {
	var b strings.Builder
	b.WriteString(intro)
	section := ""
	for _, k := range config.Keys() {
		if k.Section() != section {
			section = k.Section()
			fmt.Fprintf(&b, "## %s\n\n| key | variable | default | takes | meaning |\n|---|---|---|---|---|\n", section)
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", k.Name, k.Env(), code(k.Default), takes(k), k.Meaning)
		if last(k) {
			b.WriteString("\n")
		}
	}
	b.WriteString(outro)
	return b.String()
}

func takes(k config.Key) string {
	if k.Allowed() == "" {
		return k.Kind()
	}
	return k.Kind() + ": " + k.Allowed()
}

func code(s string) string {
	if s == "" {
		return "none"
	}
	return "`" + s + "`"
}

// last says whether a key is the last of its section.
func last(k config.Key) bool {
	keys := config.Keys()
	for i := range keys {
		if keys[i].Name == k.Name {
			return i+1 == len(keys) || keys[i+1].Section() != k.Section()
		}
	}
	return false
}

func example() string {
	var b strings.Builder
	b.WriteString(`# Every key of msghandler with its default. Take the "#" away from what you change, and from its section.
# docs/configuration.md says more. This file is made by: make generate

`)
	section := ""
	for _, k := range config.Keys() {
		if k.Section() != section {
			section = k.Section()
			fmt.Fprintf(&b, "#%s:\n", section)
		}
		for _, line := range wrap(k.Meaning, 112) {
			fmt.Fprintf(&b, "  # %s\n", line)
		}
		_, name, _ := strings.Cut(k.Name, ".")
		fmt.Fprintf(&b, "  #%s: %s\n", name, yamlValue(k))
		if last(k) {
			b.WriteString("\n")
		}
	}
	b.WriteString(`# Single producers, by their names.
#producers:
  #orders:
    #target: dns:///orders.svc:9000
    #trust: false
    #callers: []
    #tls: false
    #token_file: ""
`)
	return b.String()
}

func yamlValue(k config.Key) string {
	if k.List() {
		return "[" + strings.ReplaceAll(cmp.Or(k.Default, ""), ",", ", ") + "]"
	}
	if k.Default == "" || strings.HasPrefix(k.Default, "@") {
		return `"` + k.Default + `"`
	}
	return k.Default
}

func wrap(s string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}
