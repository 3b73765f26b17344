package deploy

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/msghandler/msghandler/internal/config"
)

// Helm packs the files of a chart's folder only, so the chart has copies of the alerts and the dashboard.
//
//go:generate cp ../../deploy/prometheus/alerts.yaml ../../deploy/helm/msghandler/files/alerts.yaml
//go:generate cp ../../deploy/grafana/msghandler.json ../../deploy/helm/msghandler/files/dashboard.json
//go:generate go test -vet=off -run TestChartSchemaKnowsEveryKey|TestChartKnowsTheLeaseRules -update .

var (
	update     = flag.Bool("update", false, "write the schema of the chart's value config anew")
	chart      = "deploy/helm/msghandler/"
	renderings = filepath.Join("kubernetes", "chart", "testdata", "rendered")
)

// The schema of the value config has exactly the coordinator's keys, so helm refuses a key that a coordinator would
// refuse.
func TestChartSchemaKnowsEveryKey(t *testing.T) {
	sections := map[string]any{}
	for _, named := range []string{"producers", "brokers", "outbox", "dead_letters"} {
		sections[named] = map[string]any{
			"type": []string{"object", "null"}, "additionalProperties": map[string]any{"type": "object"},
		}
	}
	for _, key := range config.Flags() {
		_, name, _ := strings.Cut(key.Name, ".")
		section, is := sections[key.Section()].(map[string]any)
		if !is {
			section = map[string]any{
				"type": []string{"object", "null"}, "additionalProperties": false, "properties": map[string]any{},
			}
			sections[key.Section()] = section
		}
		section["properties"].(map[string]any)[name] = schemaOf(key)
	}
	var schema map[string]any
	if err := json.Unmarshal([]byte(read(t, chart+"values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	schema["properties"].(map[string]any)["config"] = map[string]any{
		"type": "object", "additionalProperties": false, "properties": sections,
	}
	fresh, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, chart, "values.schema.json")
	if *update {
		if err := os.WriteFile(file, append(fresh, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, chart+"values.schema.json") != string(fresh)+"\n" {
		t.Errorf("%s has other keys than the coordinator; run: make generate", file)
	}
}

// leaseRules are what the coordinator demands of leases, for the chart: helm refuses a lease that a pod would refuse.
func leaseRules() string {
	usual := func(name string) string {
		key, _ := config.Find(name)
		return key.Default
	}
	return fmt.Sprintf("# Generated: a lease has at least so many times the timeout, and the margin in milliseconds.\n"+
		"confirm: {lease: %s, timeout: timeout, usual: %s, times: 2, copying: 2, margin: %d}\n"+
		"# copying: the times where dead messages are copied.\n"+
		"send: {lease: %s, timeout: confirm_timeout, usual: %s, times: 1, copying: 2, margin: %d}\n",
		usual("confirm.lease"), usual("confirm.timeout"), config.ConfirmMargin.Milliseconds()+1,
		usual("send.lease"), usual("send.confirm_timeout"), config.SendMargin.Milliseconds())
}

func TestChartKnowsTheLeaseRules(t *testing.T) {
	file := filepath.Join(root, chart, "files", "leases.yaml")
	if *update {
		if err := os.WriteFile(file, []byte(leaseRules()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, chart+"files/leases.yaml") != leaseRules() {
		t.Errorf("%s has other rules than the coordinator; run: make generate", file)
	}
}

// schemaOf allows null, which removes a default of the chart. The coordinator judges texts and numbers by itself.
func schemaOf(key config.Key) map[string]any {
	switch {
	case key.Bool():
		return map[string]any{"type": []string{"boolean", "null"}}
	case key.List():
		return map[string]any{"type": []string{"array", "string", "null"}}
	}
	return map[string]any{"type": []string{"string", "number", "null"}}
}

// The chart's appVersion is the tag of its image, and the version of the modules: make version writes all of them.
func TestChartIsOfVersionOfModules(t *testing.T) {
	t.Parallel()
	var about struct {
		Version    string
		AppVersion string `yaml:"appVersion"`
	}
	if err := yaml.Unmarshal([]byte(read(t, chart+"Chart.yaml")), &about); err != nil {
		t.Fatal(err)
	}
	modules := regexp.MustCompile(`(?m)^\t\S+/msghandler/producer v(\S+)$`).FindStringSubmatch(read(t, "go.mod"))
	if modules == nil || about.Version != modules[1] || about.AppVersion != modules[1] {
		t.Errorf("the chart is %+v, and the modules are %q", about, modules)
	}
}

// The coordinator's own strict loader accepts the configuration of each value set, and no set lets strangers in.
func TestChartConfigurationLoads(t *testing.T) {
	t.Parallel()
	loaded := map[string]*config.Config{}
	for _, set := range []string{"kustomization", "minimal", "cluster", "oidc"} {
		c, err := config.Load(config.Sources{File: mounted(t, configOf(t, set), map[string]string{
			"redis-url": "redis://:PASSWORD@redis-0:6379,redis-1:6379", "kafka-url": "kafka://kafka-1:9093?tls=true",
			"amqp-url":    "amqps://USER:PASSWORD@rabbitmq-0:5671/,amqps://USER:PASSWORD@rabbitmq-1:5671/",
			"session-key": strings.Repeat("k", 64), "oidc-client-secret": "secret",
		})})
		if err != nil {
			t.Fatalf("%s: %v", set, err)
		}
		if c.GRPC.Certificates.Key == "" || c.HTTP.Certificates.Key == "" || c.Access.Anonymous {
			t.Errorf("%s: the API or the console is open: %+v, %+v, %+v", set, c.GRPC, c.HTTP, c.Access)
		}
		loaded[set] = &c
	}
	if c := loaded["cluster"]; c.Redis.MinReplicas != 1 || c.Redis.Shards != 16 || len(c.AMQP.URLs) != 2 ||
		c.Brokers["stream"].URL == "" || c.Limits.Unfinished != 1_000_000 || c.Callbacks.TLS {
		t.Errorf("the cluster's settings are %+v", c)
	}
	if c := loaded["oidc"]; c.Access.OIDC.Issuer == "" || c.Access.TokenFile != "" || c.GRPC.Certificates.CA == "" {
		t.Errorf("the callers are known by %+v, %+v", c.Access, c.GRPC)
	}
}

// configOf is the configuration in a rendered ConfigMap.
func configOf(t *testing.T, set string) string {
	t.Helper()
	for text := range strings.SplitSeq(read(t, filepath.Join("test", "deploy", renderings, set+".yaml")), "\n---\n") {
		var object struct {
			Kind string
			Data map[string]string
		}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		if object.Kind == "ConfigMap" && object.Data["msghandler.yaml"] != "" {
			return object.Data["msghandler.yaml"]
		}
	}
	t.Fatalf("%s has no configuration", set)
	return ""
}

// mounted writes a configuration and the files of its secrets, and returns the configuration's path.
func mounted(t *testing.T, text string, secrets map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	secrets["msghandler.yaml"] = strings.ReplaceAll(text, "/run/msghandler/secrets", dir)
	for name, content := range secrets {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "msghandler.yaml")
}

// The chart rolls no pod for the keys that coordinators read again by themselves. Its list must not name others.
func TestChartRollsPodsForRestartKeys(t *testing.T) {
	t.Parallel()
	_, text, _ := strings.Cut(read(t, chart+"templates/_helpers.tpl"), `define "msghandler.restartConfig"`)
	text, _, _ = strings.Cut(text, "{{- range")
	var keys []string
	for _, section := range regexp.MustCompile(`"(\w+)" \(list ([^)]*)\)`).FindAllStringSubmatch(text, -1) {
		for _, key := range quoted(section[2]) {
			keys = append(keys, section[1]+"."+key)
		}
	}
	_, ofProducers, _ := strings.Cut(text, "$ofProducers := list ")
	for _, key := range quoted(ofProducers) {
		keys = append(keys, "producers.orders."+key)
	}
	if len(keys) != 17 {
		t.Fatalf("the list is read wrongly: %v", keys)
	}
	for _, key := range append(keys, "policy.exchanges") {
		if restart := needsRestart(t, key); restart {
			t.Errorf("%s needs a restart, and its change makes the chart restart nothing", key)
		}
	}
	if !needsRestart(t, "redis.prefix") {
		t.Error("redis.prefix is said to need no restart")
	}
}

func quoted(text string) (words []string) {
	for _, word := range regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(text, -1) {
		words = append(words, word[1])
	}
	return words
}

// needsRestart changes a key in the file of a configuration in use.
func needsRestart(t *testing.T, key string) bool {
	t.Helper()
	value := "['token:x']"
	switch name := key[strings.LastIndex(key, ".")+1:]; {
	case strings.HasPrefix(name, "max_"), strings.HasPrefix(name, "calls_"), name == "unfinished":
		value = "7"
	case name == "brokers":
		value = "[(default)]"
	case name == "prefix":
		value = "shop"
	case name == "networks":
		value = "[10.8.0.0/14]"
	case name == "allow", name == "targets":
		value = "['orders.svc:9000']"
	}
	// A source of tokens, for rules that name tokens.
	const before = "access:\n  token_file: tokens\n"
	path := strings.Split(key, ".")
	after := before
	if path[0] == "access" {
		after += fmt.Sprintf("  %s: %s\n", path[1], value)
	} else {
		inner := strings.Join(path[1:], ": {") + ": " + value
		after += fmt.Sprintf("%s: {%s}\n", path[0], inner+strings.Repeat("}", len(path)-2))
	}
	file := filepath.Join(t.TempDir(), "msghandler.yaml")
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	current, err := config.Open(config.Sources{File: file})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(after), 0o600); err != nil {
		t.Fatal(err)
	}
	_, changes, err := current.Reload()
	if err != nil || len(changes) != 1 || changes[0].Key != key {
		t.Fatalf("%s changed: %+v, %v, with\n%s", key, changes, err, after)
	}
	return changes[0].Restart
}
