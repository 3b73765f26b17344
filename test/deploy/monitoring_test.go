package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/prometheus/consumermetrics"
	"github.com/msghandler/msghandler/prometheus/outboxmetrics"
	"github.com/msghandler/msghandler/test/servers"
)

// rule holds the tested fields of an alert, or of a recorded series.
type rule struct {
	Alert       string
	Record      string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

func rules(t *testing.T) (alerts, recorded []rule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal([]byte(read(t, "deploy/prometheus/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Groups {
		for _, r := range group.Rules {
			if r.Record != "" {
				recorded = append(recorded, r)
				continue
			}
			alerts = append(alerts, r)
		}
	}
	if len(alerts) < 10 || len(recorded) < 5 {
		t.Fatalf("got %+v", file)
	}
	return alerts, recorded
}

func TestAlertRulesPassTheirTests(t *testing.T) {
	t.Parallel()
	promtool := servers.Tool(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", "alerts.yaml"},
		{"test", "rules", "alerts_test.yaml", "alerts_restart_test.yaml"},
		{"test", "rules", "alerts_objectives_test.yaml", "alerts_outage_test.yaml"},
	} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = filepath.Join(root, "deploy", "prometheus")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}

// Each alert is quiet at first, fires, and ends in the same test after the cause or the last message is gone.
func TestEachAlertFiresAndEnds(t *testing.T) {
	t.Parallel()
	type test struct {
		AlertRuleTest []struct {
			Alertname string
			EvalTime  string `yaml:"eval_time"`
			ExpAlerts []any  `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	}
	var tests []test
	for _, name := range []string{"alerts_test.yaml", "alerts_objectives_test.yaml"} {
		var file struct{ Tests []test }
		if err := yaml.Unmarshal([]byte(read(t, "deploy/prometheus/"+name)), &file); err != nil {
			t.Fatal(err)
		}
		tests = append(tests, file.Tests...)
	}
	quiet, fires, ends := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, test := range tests {
		firedAt := map[string]time.Duration{}
		for _, one := range test.AlertRuleTest {
			at, err := time.ParseDuration(one.EvalTime)
			if err != nil {
				t.Fatal(err)
			}
			fired, before := firedAt[one.Alertname]
			switch {
			case len(one.ExpAlerts) > 0:
				firedAt[one.Alertname], fires[one.Alertname] = at, true
			case before && at > fired:
				ends[one.Alertname] = true
			default:
				quiet[one.Alertname] = true
			}
		}
	}
	alerts, _ := rules(t)
	for _, r := range alerts {
		if !quiet[r.Alert] || !fires[r.Alert] || !ends[r.Alert] {
			t.Errorf("%s: shown to be quiet %t, to fire %t, to end %t", r.Alert, quiet[r.Alert], fires[r.Alert], ends[r.Alert])
		}
	}
}

func TestEachAlertHasARunbook(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/reference/alerts.md")
	alerts, _ := rules(t)
	for _, r := range alerts {
		want := "https://github.com/msghandler/msghandler/blob/main/docs/reference/alerts.md#" + strings.ToLower(r.Alert)
		if r.Annotations["runbook_url"] != want {
			t.Errorf("%s: its page is %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		_, section, found := strings.Cut(page, "\n### "+r.Alert+"\n")
		section, _, _ = strings.Cut(section, "\n#")
		if !found || !strings.Contains(section, "**Look:**") || !strings.Contains(section, "**Do:**") {
			t.Errorf("docs/reference/alerts.md names no place and no action for %s", r.Alert)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s has no summary or no description", r.Alert)
		}
		begin := map[string]string{"page": "\n*Page.* ", "ticket": "\n*Ticket.* "}[r.Labels["severity"]]
		if begin == "" || !strings.HasPrefix(section, begin) {
			t.Errorf("docs/reference/alerts.md does not begin %s with the severity %q", r.Alert, r.Labels["severity"])
		}
	}
}

// metricRow is a row of a table of metrics.
var metricRow = regexp.MustCompile("(?m)^\\| `(msghandler_[a-z_]+)` \\|")

// pageOfMetrics are the metrics on docs/reference/metrics.md: those of a coordinator, whose table is generated from the
// registered metrics, and those of the SDKs.
func pageOfMetrics(t *testing.T) (coordinator, sdks map[string]bool) {
	t.Helper()
	generated, rest, found := strings.Cut(read(t, "docs/reference/metrics.md"), "<!-- end of metrics -->")
	if !found {
		t.Fatal("docs/reference/metrics.md has no generated table")
	}
	names := func(text string) map[string]bool {
		all := map[string]bool{}
		for _, row := range metricRow.FindAllStringSubmatch(text, -1) {
			all[row[1]] = true
		}
		return all
	}
	return names(generated), names(rest)
}

// ofAnOutbox are the metrics that only a coordinator with an outbox.NAME has.
var ofAnOutbox = []string{"msghandler_outbox_up", "msghandler_outbox_held_messages"}

func TestPageHasMetricsOfSDKs(t *testing.T) {
	t.Parallel()
	_, page := pageOfMetrics(t)
	want := map[string]bool{}
	for _, name := range append(ofTheSDKs(t), ofAnOutbox...) {
		want[name] = true
	}
	if !maps.Equal(page, want) {
		t.Errorf("docs/reference/metrics.md has %v, and the SDKs have %v", page, want)
	}
}

// registered are the metrics of coordinators and of the SDKs.
func registered(t *testing.T) map[string]bool {
	t.Helper()
	names, _ := pageOfMetrics(t)
	for _, name := range append(ofTheSDKs(t), ofAnOutbox...) {
		names[name] = true
	}
	if len(names) < 30 {
		t.Fatalf("the table has only %d metrics", len(names))
	}
	return names
}

// registeredAndRecorded are these metrics, and what the rules record of them.
func registeredAndRecorded(t *testing.T) map[string]bool {
	t.Helper()
	known := registered(t)
	_, recorded := rules(t)
	for _, r := range recorded {
		known[r.Record] = true
	}
	return known
}

// ofTheSDKs are the metrics of producers and consumers after an event of each kind.
func ofTheSDKs(t *testing.T) (names []string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	table, err := outboxmetrics.New(registry, "orders")
	if err != nil {
		t.Fatal(err)
	}
	table.Relayed(outbox.Sent, 1)
	table.Counted(sql.Backlog{})
	queue, err := consumermetrics.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	queue.Begun("payments")
	queue.Ended("payments", consumer.Effect, time.Second)
	queue.Depth("payments", 0)
	queue.DeadLetters("payments", 0)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		names = append(names, family.GetName())
	}
	return names
}

// unknown are the unregistered metrics of a query.
func unknown(query string, known map[string]bool) (missing []string) {
	for _, name := range regexp.MustCompile(`\b(?:job:)?msghandler_[a-z_]+(?::\w+)?`).FindAllString(query, -1) {
		histogram := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if !known[name] && !known[histogram] {
			missing = append(missing, name)
		}
	}
	return missing
}

func TestAlertsUseExistingMetrics(t *testing.T) {
	t.Parallel()
	known := registeredAndRecorded(t)
	alerts, recorded := rules(t)
	for _, r := range append(alerts, recorded...) {
		for _, text := range []string{r.Expr, r.Annotations["description"]} {
			if missing := unknown(text, known); len(missing) > 0 {
				t.Errorf("%s%s asks for %v, which there are not", r.Alert, r.Record, missing)
			}
		}
	}
}

func TestDashboardUsesExistingMetrics(t *testing.T) {
	t.Parallel()
	known := registeredAndRecorded(t)
	var dashboard struct {
		UID    string
		Panels []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr, RefID string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "deploy/grafana/msghandler.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d, %q, has the number of another panel, no title, or no room", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			if missing := unknown(target.Expr, known); len(missing) > 0 {
				t.Errorf("%s asks for %v, which there are not", p.Title, missing)
			}
		}
	}
	if len(ids) < 20 || dashboard.UID != "msghandler" {
		t.Errorf("%d panels in %q", len(ids), dashboard.UID)
	}
}

// A click on a panel or on a link of the dashboard leads to a page that exists.
func TestDashboardLinksLeadToPages(t *testing.T) {
	t.Parallel()
	const pages = "https://github.com/msghandler/msghandler/blob/main/"
	links := regexp.MustCompile(`"url": "(.*)"`).FindAllStringSubmatch(read(t, "deploy/grafana/msghandler.json"), -1)
	if len(links) < 10 {
		t.Fatalf("found only %d links", len(links))
	}
	for _, link := range links {
		if link[1] == "${scheme}://${__field.labels.instance}/" {
			continue // the console of a coordinator, with or without TLS
		}
		path, anchor, _ := strings.Cut(strings.TrimPrefix(link[1], pages), "#")
		if !strings.Contains(strings.ToLower(read(t, path))+"\n", "\n### "+anchor+"\n") && anchor != "" {
			t.Errorf("%s has no heading for %s", path, link[1])
		}
	}
}

// Every query about coordinators can be narrowed to one of them.
func TestDashboardQueriesKnowTheCoordinator(t *testing.T) {
	t.Parallel()
	coordinators, _ := pageOfMetrics(t)
	for _, query := range regexp.MustCompile(`"expr": "(.*)"`).FindAllStringSubmatch(
		read(t, "deploy/grafana/msghandler.json"), -1) {
		for _, metric := range regexp.MustCompile(`\bmsghandler_[a-z_]+(\{[^}]*)?`).FindAllString(query[1], -1) {
			name, _, _ := strings.Cut(metric, "{")
			if coordinators[name] && !strings.Contains(metric, `instance=~\"$instance\"`) {
				t.Errorf("%s asks all coordinators, although $instance names a single one", query[1])
			}
		}
	}
}

// The dashboard's queries are PromQL: promtool reads each query as a rule.
func TestDashboardQueriesAreValidPromQL(t *testing.T) {
	t.Parallel()
	promtool := servers.Tool(t, "promtool")
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal([]byte(read(t, "deploy/grafana/msghandler.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	type record struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var records []record
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "1m")
			records = append(records, record{fmt.Sprint("query", len(records)), expr})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "queries", "rules": records}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
