package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

//go:generate go test -vet=off -run TestKubernetesHasTheAlerts -update .

// A PrometheusRule holds the groups of a file of rules. Kustomize cannot wrap a file, so the object is generated.
func TestKubernetesHasTheAlerts(t *testing.T) {
	const object = "deploy/kubernetes/monitoring/rules.yaml"
	var want strings.Builder
	want.WriteString("# make generate makes this object of deploy/prometheus/alerts.yaml.\n" +
		"apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: msghandler\nspec:\n")
	_, groups, _ := strings.Cut(read(t, "deploy/prometheus/alerts.yaml"), "\ngroups:\n")
	for line := range strings.Lines("groups:\n" + groups) {
		want.WriteString("  " + line)
	}
	file := filepath.Join(root, object)
	if *update {
		if err := os.WriteFile(file, []byte(want.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, object) != want.String() {
		t.Errorf("%s is stale; run: make generate", object)
	}
}
