// Package chart renders the chart of deploy/helm by helm's own library, and reads the objects as Kubernetes would.
// Helm takes long to compile: make chart runs these tests, and the package above compares what they have written.
package chart

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"

	"github.com/msghandler/msghandler/test/deploy/kubernetes/objects"
)

var (
	update = flag.Bool("update", false, "write testdata/rendered anew")
	folder = filepath.Join("..", "..", "..", "..", "deploy", "helm", "msghandler")
)

// release is the name and the namespace under which a chart is installed.
type release struct{ name, namespace string }

var usual = release{"msghandler", "msghandler"}

// releases are the releases of the value sets that have another than the usual one.
var releases = map[string]release{"oidc": {"shop", "orders"}}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	loaded, err := loader.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// valueSets are the files of testdata/values by their names.
func valueSets(t *testing.T) map[string]chartutil.Values {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "values", "*.yaml"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%d value sets: %v", len(files), err)
	}
	sets := map[string]chartutil.Values{}
	for _, file := range files {
		values, err := chartutil.ReadValuesFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sets[strings.TrimSuffix(filepath.Base(file), ".yaml")] = values
	}
	return sets
}

// render gives the templates' texts by their names, as helm install does with these values.
func render(of *chart.Chart, r release, values chartutil.Values) (map[string]string, error) {
	cluster := chartutil.DefaultCapabilities.Copy()
	cluster.APIVersions = append(cluster.APIVersions, "monitoring.coreos.com/v1", "cert-manager.io/v1")
	options := chartutil.ReleaseOptions{Name: r.name, Namespace: r.namespace, Revision: 1, IsInstall: true}
	// Rendering changes the values that it is given.
	with, err := chartutil.ToRenderValues(of, copied(values), options, cluster)
	if err != nil {
		return nil, err
	}
	return engine.Render(of, with)
}

func copied(values chartutil.Values) chartutil.Values {
	text, err := values.YAML()
	if err != nil {
		panic(err)
	}
	again, err := chartutil.ReadValues([]byte(text))
	if err != nil {
		panic(err)
	}
	return again
}

// manifest joins the templates' texts as helm template does. NOTES.txt is no manifest.
func manifest(texts map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if text := strings.TrimSpace(texts[name]); text != "" && strings.HasSuffix(name, ".yaml") {
			b.WriteString("---\n# Source: " + name + "\n" + text + "\n")
		}
	}
	return b.String()
}

func mustRender(t *testing.T, r release, values chartutil.Values) string {
	t.Helper()
	texts, err := render(load(t), r, values)
	if err != nil {
		t.Fatal(err)
	}
	return manifest(texts)
}

// What the chart renders is in testdata/rendered for reviewers, and for the package above, which needs no helm.
func TestRenderedManifestsAreFresh(t *testing.T) {
	for name, values := range valueSets(t) {
		r, other := releases[name]
		if !other {
			r = usual
		}
		text := mustRender(t, r, values)
		if again := mustRender(t, r, values); again != text {
			t.Errorf("%s is rendered differently the second time", name)
		}
		file := filepath.Join("testdata", "rendered", name+".yaml")
		if *update {
			write(t, file, text)
		}
		if committed, err := os.ReadFile(file); err != nil || string(committed) != text {
			t.Errorf("%s differs from the chart's rendering (%v); run: make chart UPDATE=-update", file, err)
		}
	}
	sum, err := objects.Sum(folder, filepath.Join("testdata", "values"))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		write(t, filepath.Join("testdata", "rendered", "sum"), sum)
	}
	committed, err := os.ReadFile(filepath.Join("testdata", "rendered", "sum"))
	if err != nil || string(committed) != sum {
		t.Errorf("the sum of the sources differs from testdata/rendered/sum (%v); run: make chart UPDATE=-update", err)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLintHasNoWarnings(t *testing.T) {
	sets := valueSets(t)
	sets["none"] = chartutil.Values{}
	for name, values := range sets {
		result := lint.All(folder, copied(values), usual.namespace, true)
		for _, message := range result.Messages {
			// An icon is only for catalogues of charts.
			if message.Severity > support.InfoSev || !strings.Contains(message.Error(), "icon") {
				t.Errorf("with the values %s: %s", name, message.Error())
			}
		}
	}
}

// A packed chart has all files, and renders the same.
func TestPackedChartRendersTheSame(t *testing.T) {
	archive, err := chartutil.Save(load(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	packed, err := loader.Load(archive)
	if err != nil {
		t.Fatal(err)
	}
	values := valueSets(t)["cluster"]
	texts, err := render(packed, usual, values)
	if err != nil {
		t.Fatal(err)
	}
	if manifest(texts) != mustRender(t, usual, values) {
		t.Error("the packed chart renders other manifests")
	}
}

func TestNotesNameTheInstallation(t *testing.T) {
	texts, err := render(load(t), release{"shop", "orders"}, valueSets(t)["oidc"])
	if err != nil {
		t.Fatal(err)
	}
	notes := texts["msghandler/templates/NOTES.txt"]
	for _, want := range []string{
		"shop-msghandler: 3 coordinators in namespace orders", "rollout status deployment/shop-msghandler",
		"dns:///shop-msghandler-grpc.orders.svc:9090",
		"https://messages.example.com", "kubectl label namespace NAME msghandler/servers=true",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not say %q:\n%s", want, notes)
		}
	}
}
