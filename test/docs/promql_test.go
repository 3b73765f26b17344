package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/msghandler/msghandler/test/servers"
)

// metricPattern is a name of ours in an expression: a metric, or a table of a database.
var metricPattern = regexp.MustCompile(`\bmsghandler_[a-z_]+`)

// expressionPattern is an expression of PromQL in a sentence, and not the name of a metric alone.
var expressionPattern = regexp.MustCompile(`^([a-z_]+ ?\(.*)?\bmsghandler_[a-z_]+ ?[{\[)><=+*/-]`)

// expression is PromQL on a page.
type expression struct {
	text string
	at   func(what string) problem
}

// expressions are all expressions of a page.
func expressions(p *page) (all []expression) {
	for _, b := range p.blocks {
		if b.language == "promql" {
			all = append(all, expression{b.text(), func(what string) problem { return b.problem(1, what) }})
		}
	}
	for _, s := range p.spans {
		if expressionPattern.MatchString(s.code) {
			all = append(all, expression{s.code, func(what string) problem { return problem{s.page, s.line, what} }})
		}
	}
	return all
}

var refusal = regexp.MustCompile(`"query(\d+)": (.*)`)

// checkExpressions has promtool read the expressions of a page, and demands that their metrics exist.
func checkExpressions(t *testing.T, p *page) (problems []problem) {
	t.Helper()
	all := expressions(p)
	if len(all) == 0 {
		return nil
	}
	for _, e := range all {
		for _, name := range metricPattern.FindAllString(e.text, -1) {
			if what := knownMetric(t, name); what != "" {
				problems = append(problems, e.at(what))
			}
		}
	}
	out, err := promtool(t, all)
	found := refusal.FindAllStringSubmatch(out, -1)
	if err != nil && len(found) == 0 {
		t.Fatalf("promtool: %v\n%s", err, out)
	}
	for _, f := range found {
		i, _ := strconv.Atoi(f[1])
		problems = append(problems, all[i].at(f[2]))
	}
	return problems
}

// promtool checks each expression as a rule of its own.
func promtool(t *testing.T, all []expression) (output string, err error) {
	t.Helper()
	type record struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var records []record
	for i, e := range all {
		records = append(records, record{fmt.Sprint("query", i), e.text})
	}
	rules := map[string]any{"groups": []any{map[string]any{"name": "page", "rules": records}}}
	text, err := yaml.Marshal(rules)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, string(text))
	out, err := exec.Command(servers.Tool(t, "promtool"), "check", "rules", file).CombinedOutput()
	return string(out), err
}

// knownMetric demands that the pages of the metrics and of the tables have the name. Tests keep both pages complete.
func knownMetric(t *testing.T, name string) string {
	t.Helper()
	series := strings.NewReplacer("_bucket", "", "_count", "", "_sum", "").Replace(name)
	for _, path := range []string{"docs/reference/metrics.md", "docs/reference/tables.md"} {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		names := metricPattern.FindAllString(string(text), -1)
		if slices.Contains(names, name) || slices.Contains(names, series) {
			return ""
		}
	}
	return fmt.Sprintf("there is no metric %s: docs/reference/metrics.md has the metrics", name)
}
