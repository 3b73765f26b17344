package kubernetes

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/msghandler/msghandler/test/deploy/kubernetes/objects"
)

var (
	chartFolder = filepath.Join("..", "..", "..", "deploy", "helm", "msghandler")
	values      = filepath.Join("chart", "testdata", "values")
	renderings  = filepath.Join("chart", "testdata", "rendered")
)

// foreign are kinds that the package chart reads by their own types.
var foreign = objects.Kinds{
	"monitoring.coreos.com/v1 ServiceMonitor": foreignKind, "monitoring.coreos.com/v1 PodMonitor": foreignKind,
	"monitoring.coreos.com/v1 PrometheusRule": foreignKind, "cert-manager.io/v1 Certificate": foreignKind,
}

func foreignKind() objects.Object { return &anything{} }

type anything struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`

	Spec map[string]any `json:"spec"`
}

// Helm takes long to compile, so ordinary tests read what make chart has rendered.
func TestChartRenderingsAreFresh(t *testing.T) {
	want, err := objects.Sum(chartFolder, values)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(renderings, "sum")); err != nil || string(got) != want {
		t.Errorf("the chart or a value set of its tests has changed (%v); run: make chart UPDATE=-update", err)
	}
}

func ofTheChart(t *testing.T, set string) []objects.Object {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(renderings, set+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := objects.Read(string(text), foreign)
	if err != nil {
		t.Fatalf("%s: %v", set, err)
	}
	return all
}

func TestRenderedObjectsAreOfKubernetes(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(values, "*.yaml"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%d value sets: %v", len(files), err)
	}
	for _, file := range files {
		all := ofTheChart(t, strings.TrimSuffix(filepath.Base(file), ".yaml"))
		if len(objects.Only[*apps.Deployment](all)) != 1 || len(objects.Only[*core.Service](all)) != 2 {
			t.Errorf("%s has %d objects", file, len(all))
		}
	}
}

// The chart with its defaults is deploy/kubernetes. What differs is named here: labels that only helm sets, the name of
// the ConfigMap, and the way in which a changed configuration rolls the pods.
func TestChartAndKustomizationAreTheSame(t *testing.T) {
	kustomized, all := render(t), ofTheChart(t, "kustomization")
	deployment := objects.Only[*apps.Deployment](all)[0]
	pod := &deployment.Spec.Template
	delete(pod.Annotations, "checksum/config")
	for i := range pod.Spec.Volumes {
		plain(&pod.Spec.Volumes[i], kustomized.config.Name)
	}
	if pod.Spec.Containers[0].ImagePullPolicy != core.PullIfNotPresent { // which is the default
		t.Errorf("the image is pulled %s", pod.Spec.Containers[0].ImagePullPolicy)
	}
	pod.Spec.Containers[0].ImagePullPolicy = ""
	same(t, kustomized.deployment.Spec, deployment.Spec)
	same(t, kustomized.disruption.Spec, objects.Only[*policy.PodDisruptionBudget](all)[0].Spec)
	same(t, kustomized.network.Spec, objects.Only[*networking.NetworkPolicy](all)[0].Spec)
	services := objects.Only[*core.Service](all)
	for i, service := range kustomized.services {
		if service.Name != services[i].Name {
			t.Errorf("the services are %s and %s", service.Name, services[i].Name)
		}
		same(t, service.Spec, services[i].Spec)
	}
	var ours, charts map[string]any
	for text, into := range map[string]*map[string]any{
		kustomized.config.Data["msghandler.yaml"]:                     &ours,
		objects.Only[*core.ConfigMap](all)[0].Data["msghandler.yaml"]: &charts,
	} {
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	same(t, ours, charts)
}

// plain makes a volume of one secret's files from a projected one, and gives the ConfigMap the name that kustomize
// makes.
func plain(volume *core.Volume, config string) {
	if p := volume.Projected; p != nil && len(p.Sources) == 1 && p.Sources[0].Secret != nil {
		volume.Projected = nil
		volume.Secret = &core.SecretVolumeSource{SecretName: p.Sources[0].Secret.Name, DefaultMode: p.DefaultMode}
	}
	if volume.ConfigMap != nil {
		volume.ConfigMap.Name = config
	}
}

// same compares two values without the label of helm's release.
func same(t *testing.T, kustomized, chart any) {
	t.Helper()
	a, errA := yaml.Marshal(kustomized)
	b, errB := yaml.Marshal(chart)
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	without := slices.DeleteFunc(strings.Split(string(b), "\n"), func(line string) bool {
		return strings.TrimSpace(line) == "app.kubernetes.io/instance: msghandler"
	})
	if strings.Join(without, "\n") != string(a) {
		t.Errorf("%s\nof deploy/kubernetes:\n%s\nof the chart:\n%s", reflect.TypeOf(chart), a, b)
	}
}
