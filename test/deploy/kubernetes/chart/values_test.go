package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chartutil"

	"github.com/msghandler/msghandler/test/deploy/kubernetes/objects"
)

// with is a value set with other values over it, in YAML.
func with(t *testing.T, set, other string) chartutil.Values {
	t.Helper()
	over, err := chartutil.ReadValues([]byte(other))
	if err != nil {
		t.Fatal(err)
	}
	return chartutil.MergeTables(over, copied(valueSets(t)[set]))
}

// only renders, and gives the one object of a type.
func only[T objects.Object](t *testing.T, values chartutil.Values) T {
	t.Helper()
	found := objects.Only[T](read(t, mustRender(t, usual, values)))
	if len(found) != 1 {
		t.Fatalf("%d objects", len(found))
	}
	return found[0]
}

func TestWrongValuesAreNamed(t *testing.T) {
	for other, want := range map[string]string{
		"replicas: three":                                    "at '/replicas': got string, want integer",
		"replica: 3":                                         "additional properties 'replica' not allowed",
		"tls: {secrets: msghandler-tls}":                     "at '/tls': additional properties 'secrets' not allowed",
		"config: {redis: {ulr: 'redis://redis:6379'}}":       "at '/config/redis': additional properties 'ulr' not allowed",
		"config: {rediss: {}}":                               "at '/config': additional properties 'rediss' not allowed",
		"config: {http: {bodies: 'no'}}":                     "at '/config/http/bodies': got string, want null or boolean",
		"image: {digest: 'sha256:12'}":                       "at '/image/digest'",
		"secrets: msghandler":                                "at '/secrets': got string, want array",
		"monitoring: {monitor: servicemonitor}":              "at '/monitoring/monitor': value must be one of",
		"ingress: {enabled: true, hosts: ['https://x.org']}": "at '/ingress/hosts/0'",
		"networkPolicy: {serverPorts: [redis]}":              "at '/networkPolicy/serverPorts/0': got string, want integer",
		"fullnameOverride: Orders":                           "at '/fullnameOverride'",
		"disruptionBudget: {maxUnavailable: most}":           "at '/disruptionBudget/maxUnavailable'",
		"image: {repository: ''}":                            "image.repository: where the image is",
		"tls: {secret: null}":                                "tls.secret: a secret with tls.crt",
		"tls: {certManager: {issuer: ca}}":                   "either tls.secret or tls.certManager.issuer",
		"secrets: []":                                        "secrets: secrets with redis-url",
		"access: null":                                       "missing property 'access'",
		"tls: {certManager: null}":                           "at '/tls': missing property 'certManager'",
		"access: {tokens: false}":                            "who may call: access.tokens",
		"access: {tokens: false, certificates: true}":        "who may use the console",
		"{access: {tokens: false, certificates: true}, config: {http: {read_only: true}}}": "who may use the console",
		"tls: {enabled: false}":                               "tls.enabled, which access.tokens",
		"{access: {certificates: true}, tls: {ca: ''}}":       "tls.ca, which access.certificates needs",
		"{configSecret: mine, config: {log: {level: debug}}}": "either config or configSecret",
		"config: {grpc: {addr: '0.0.0.0:9999'}}":              "no config.grpc.addr",
		"authorities: {configMap: a, secret: b}":              "either authorities.configMap or",
		"ingress: {enabled: true}":                            "ingress.hosts: the names of the console",
		"monitoring: {monitor: PodMonitor}":                   "monitoring.tokenSecret.name",
		"config: {confirm: {lease: 2s}}":                      "config.confirm.lease of at least 7001 ms",
		"config: {confirm: {lease: 7s, timeout: 3000ms}}":     "config.confirm.lease of at least 7001 ms",
		"config: {send: {lease: 14s}}":                        "config.send.lease of at least 15000 ms",
		"resources: {limits: {memory: 1e9}}":                  "write it in Mi or Gi, or set goMemoryLimit",

		"config: {confirm: {timeout: 15s}}": "config.confirm.lease of at least 31001 ms",

		"config: {send: {lease: 24s, dead_letter_exchange: dead}}":                 "config.send.lease of at least 25000 ms",
		"config: {send: {lease: 24s}, brokers: {b: {dead_letter_exchange: dead}}}": "config.send.lease of at least 25000 ms",
	} {
		_, err := render(load(t), usual, with(t, "minimal", other))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error does not say %q: %v", other, want, err)
		}
	}
}

// Each value file of the page renders, over the three values that every installation needs.
func TestValuesOfThePageRender(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "run", "kubernetes.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 8 {
		t.Fatalf("the page has %d value files", len(blocks))
	}
	for _, block := range blocks {
		if strings.Contains(block[1], "kind: Kustomization") {
			continue // TestOverlayOfThePageRenders has it
		}
		read(t, mustRender(t, usual, with(t, "minimal", block[1])))
	}
}

// A value whose keys are all commented out is null, and so the default or nothing.
func TestEmptyValuesRender(t *testing.T) {
	for _, other := range []string{
		"config:", "config: {confirm: {lease: 2s, timeout: 400ms}, send: {lease: 1m1s, confirm_timeout: 0.5m}}",
		"config: {redis: , access: , grpc: , producers: }", "podLabels:", "podAnnotations:", "resources:",
		"extraEnv:",
		"topologySpreadConstraints:", "networkPolicy: {producers: , metrics: , servers: , serverPorts: , dns: }",
		"{ingress: {enabled: true, hosts: [x.org]}, networkPolicy: {ingressController: }}", "goMemoryLimit:", "configSecret:",
		"fullnameOverride:", "imagePullSecrets:", "monitoring: {dashboardLabels: , labels: , dashboard: true}",
	} {
		read(t, mustRender(t, usual, with(t, "minimal", other)))
	}
}

// Without values helm names all that is missing, at once.
func TestChartNamesMissingValues(t *testing.T) {
	_, err := render(load(t), usual, chartutil.Values{})
	if err == nil {
		t.Fatal("the chart renders")
	}
	for _, want := range []string{"tls.secret:", "secrets:", "docs/run/kubernetes.md"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s:\n%v", want, err)
		}
	}
}

// A ConfigMap is read by more people than a secret is, and helm keeps and prints its values.
func TestConfigTakesNoPassword(t *testing.T) {
	for _, other := range []string{
		"redis: {url: 'redis://:hunter2@redis:6379/0'}", "amqp: {url: ['amqp://a:5672/', 'amqps://u:hunter2@b:5671/']}",
		"brokers: {stream: {url: 'nats://nats:4222?token=hunter2'}}",
		"outbox: {o: {producer: orders, dsn: 'postgres://db/shop?sslmode=require&password=hunter2'}}",
		"events: {webhook: 'https://example.com/', webhook_token: hunter2}",
	} {
		_, err := render(load(t), usual, with(t, "minimal", "config: {"+other+"}"))
		if err == nil || !strings.Contains(err.Error(), "no password in config") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", other, err)
		}
	}
	const harmless = "oidc_ca: a, oidc_issuer: 'https://idp', viewers: ['oidc:anna@shop']"
	settings(t, with(t, "minimal", "config: {access: {"+harmless+"}}"))
}

// settings are what the coordinators read, in sections.
func settings(t *testing.T, values chartutil.Values) map[string]map[string]any {
	t.Helper()
	config := only[*core.ConfigMap](t, values).Data["msghandler.yaml"]
	var sections map[string]map[string]any
	if err := yaml.UnmarshalStrict([]byte(config), &sections); err != nil {
		t.Fatalf("%v in:\n%s", err, config)
	}
	return sections
}

func TestConfigReplacesDefaultsOfTheChart(t *testing.T) {
	got := settings(t, with(t, "minimal", `{config: {
		redis: {url: 'redis://redis:6379/0', prefix: shop}, callbacks: {tls: false, tls_ca: null, allow: []},
		http: {session_key_file: ''}, limits: {unfinished: 12345678}, log: null}}`))
	if url, file := got["redis"]["url"], got["redis"]["url_file"]; url != "redis://redis:6379/0" || file != nil {
		t.Errorf("the URL is %v, and its file %v", url, file)
	}
	callbacks := got["callbacks"]
	if _, is := callbacks["tls_ca"]; is || callbacks["tls"] != false || len(callbacks["allow"].([]any)) > 0 ||
		callbacks["networks"] == nil {
		t.Errorf("callbacks are %v", callbacks)
	}
	if key := got["http"]["session_key_file"]; key != "" {
		t.Errorf("the key of the sessions is in %v", key)
	}
	if n := got["limits"]["unfinished"]; n != float64(12345678) {
		t.Errorf("limits.unfinished is %v", n)
	}
	if got["amqp"]["url_file"] != "/run/msghandler/secrets/amqp-url" || got["log"]["format"] != "json" {
		t.Errorf("other defaults are lost: %v", got)
	}
}

// Names from outside are names of the console, and a login returns to the first.
func TestIngressNamesAreNamesOfConsole(t *testing.T) {
	http := settings(t, valueSets(t)["oidc"])["http"]
	hosts, _ := http["hosts"].([]any)
	if len(hosts) != 3 || hosts[1] != "messages.example.com" || http["public_url"] != "https://messages.example.com" {
		t.Errorf("the console's names are %v, and its URL %v", hosts, http["public_url"])
	}
}

// Rules and policies are read again by the coordinators. All other changes make a rolling restart.
func TestOnlyRestartChangesRollPods(t *testing.T) {
	checksum := func(other string) string {
		pods := only[*apps.Deployment](t, with(t, "minimal", other)).Spec.Template
		return pods.Annotations["checksum/config"]
	}
	before := checksum("{}")
	for _, other := range []string{
		"config: {policy: {exchanges: [shop.*]}}", "config: {access: {viewers: ['token:*']}}",
		"config: {callbacks: {allow: ['orders.svc:9000']}}", "config: {limits: {unfinished: 5}}",
		"config: {producers: {orders: {max_body: 1KiB, callers: ['token:x']}}}",
	} {
		if checksum(other) != before {
			t.Errorf("%s rolls the pods, and the coordinators read the file again by themselves", other)
		}
	}
	for _, other := range []string{
		"config: {redis: {prefix: shop}}", "config: {producers: {orders: {trust: true}}}", "config: {limits: {body: 5}}",
		"access: {certificates: true}",
	} {
		if checksum(other) == before {
			t.Errorf("%s rolls no pod", other)
		}
	}
}

func TestPolicyWithoutPeersIsNotOpen(t *testing.T) {
	spec := only[*networking.NetworkPolicy](t, with(t, "minimal", `networkPolicy: {
		producers: [], operators: [], metrics: [], servers: [], dns: []}`)).Spec
	if len(spec.PolicyTypes) != 2 || len(spec.Ingress) > 0 || len(spec.Egress) > 0 {
		t.Errorf("open are %v and %v", spec.Ingress, spec.Egress)
	}
}

// Labels of the user never change what selectors find.
func TestPodLabelsCannotReplaceTheSelectors(t *testing.T) {
	labels := only[*apps.Deployment](t, with(t, "minimal", `podLabels: {
		app.kubernetes.io/name: other, team: shop}`)).Spec.Template.Labels
	if labels["app.kubernetes.io/name"] != "msghandler" || labels["team"] != "shop" {
		t.Errorf("the pods have %v", labels)
	}
}

func TestGoMemoryLimitFollowsPods(t *testing.T) {
	for other, want := range map[string]string{
		"{}": "900MiB", "resources: {limits: {memory: 2Gi}}": "1800MiB", "resources: {limits: {memory: 512Mi}}": "450MiB",
		"{goMemoryLimit: 1GiB, resources: {limits: {memory: 1500M}}}": "1GiB", "resources: null": "",
	} {
		got := ""
		for _, env := range only[*apps.Deployment](t, with(t, "minimal", other)).Spec.Template.Spec.Containers[0].Env {
			got += env.Value
		}
		if got != want {
			t.Errorf("with %s Go may take %q, want %q", other, got, want)
		}
	}
}

// The alert of a coordinator that is away looks for the job that the monitor gives the coordinators.
func TestAlertsAndMonitorNameSameJob(t *testing.T) {
	texts := read(t, mustRender(t, release{"orders", "shop"}, valueSets(t)["cluster"]))
	monitor, rules := objects.Only[*monitoring.ServiceMonitor](texts), objects.Only[*monitoring.PrometheusRule](texts)
	if monitor[0].Spec.JobLabel != "app.kubernetes.io/instance" {
		t.Errorf("the job is the label %s", monitor[0].Spec.JobLabel)
	}
	services := objects.Only[*core.Service](texts)
	if services[1].Labels[monitor[0].Spec.JobLabel] != "orders" {
		t.Errorf("the service has %v", services[1].Labels)
	}
	named := 0
	for _, group := range rules[0].Spec.Groups {
		for _, rule := range group.Rules {
			named += strings.Count(rule.Expr.String(), `up{job="orders"}`)
			if strings.Contains(rule.Expr.String(), `job="msghandler"`) {
				t.Errorf("%s asks %s", rule.Alert, rule.Expr.String())
			}
		}
	}
	if named == 0 {
		t.Error("no rule asks for the coordinators of the release")
	}
}
