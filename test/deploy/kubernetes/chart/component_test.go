package chart

import (
	"path/filepath"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/msghandler/msghandler/test/deploy/kubernetes/objects"
)

// The component of deploy/kubernetes scrapes the service of the manifests as the job that the alerts look for.
func TestComponentScrapesTheService(t *testing.T) {
	deploy, err := filepath.Abs(filepath.Join("..", "..", "..", "..", "deploy", "kubernetes"))
	if err != nil {
		t.Fatal(err)
	}
	overlay := t.TempDir()
	files := filesys.MakeFsOnDisk()
	relative, err := filepath.Rel(overlay, deploy)
	if err != nil {
		t.Fatal(err)
	}
	err = files.WriteFile(filepath.Join(overlay, "kustomization.yaml"),
		[]byte("resources: ["+relative+"]\ncomponents: ["+relative+"/monitoring]\n"))
	if err != nil {
		t.Fatal(err)
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, overlay)
	if err != nil {
		t.Fatal(err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	all := read(t, string(text))
	monitor, rules := objects.Only[*monitoring.ServiceMonitor](all), objects.Only[*monitoring.PrometheusRule](all)
	if len(monitor) != 1 || len(rules) != 1 || len(rules[0].Spec.Groups[0].Rules) < 40 {
		t.Fatalf("the chart has %d monitors and %d objects of rules", len(monitor), len(rules))
	}
	if !strings.Contains(string(text), `expr: up{job="msghandler"} == 0`) {
		t.Error("no rule asks for the coordinators by the job of the monitor")
	}
	endpoint := monitor[0].Spec.Endpoints[0]
	for _, service := range objects.Only[*core.Service](all) {
		if service.Spec.Ports[0].Name != endpoint.Port {
			continue
		}
		name := service.Name + ".msghandler.svc"
		if service.Labels[monitor[0].Spec.JobLabel] != "msghandler" || *endpoint.TLSConfig.ServerName != name {
			t.Errorf("the monitor expects %s, and the service is %v", *endpoint.TLSConfig.ServerName, service.ObjectMeta)
		}
		return
	}
	t.Errorf("no service has the port %s", endpoint.Port)
}
