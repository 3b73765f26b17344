// Package dashboard reads the dashboard strictly as the types that Grafana generates from its schema.
package dashboard

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// read reads a dashboard. Unknown fields, missing fields and values of another type are errors.
func read(data []byte) error {
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(stat.VariantConfig())
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterDataqueryVariant(prometheus.VariantConfig())
	var d dashboard.Dashboard
	// The result without a mistake is an empty list in place of nil.
	if err := d.UnmarshalJSONStrict(data); err != nil && err.Error() != "" {
		return err
	}
	return d.Validate()
}

func TestDashboardIsOfGrafanasSchema(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "deploy", "grafana", "msghandler.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := read(data); err != nil {
		t.Error(err)
	}
	for old, wrong := range map[string]string{
		`"reduceOptions"`: `"reduced"`, `"showLegend": true`: `"showLegends": true`, `"expr": `: `"query": `,
		`"schemaVersion": 39`: `"schemaVersion": "new"`,
	} {
		if broken := strings.Replace(string(data), old, wrong, 1); broken == string(data) || read([]byte(broken)) == nil {
			t.Errorf("%s in place of %s is no mistake", wrong, old)
		}
	}
}
