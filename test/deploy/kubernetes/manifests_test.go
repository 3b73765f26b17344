// Package kubernetes renders the manifests of deploy/kubernetes and reads them as Kubernetes would.
package kubernetes

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/msghandler/msghandler/test/deploy/kubernetes/objects"
)

// rendered are the expected resources, one of each kind except the services.
type rendered struct {
	deployment apps.Deployment
	config     core.ConfigMap
	services   []core.Service
	disruption policy.PodDisruptionBudget
	network    networking.NetworkPolicy
}

// overlay makes the overlay of docs/run/kubernetes.md beside a checkout, with a configuration of its own.
func overlay(t *testing.T, change func(settings string) string) (dir string) {
	t.Helper()
	root, dir := filepath.Join("..", "..", ".."), t.TempDir()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	manifests := filepath.Join("deploy", "kubernetes")
	must(os.CopyFS(filepath.Join(dir, "msghandler", manifests), os.DirFS(filepath.Join(root, manifests))))
	page, err := os.ReadFile(filepath.Join(root, "docs", "run", "kubernetes.md"))
	must(err)
	block := regexp.MustCompile("(?s)```yaml\n([^`]*kind: Kustomization\n.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("the page has no overlay")
	}
	settings, err := os.ReadFile(filepath.Join(root, manifests, "msghandler.yaml"))
	must(err)
	dir = filepath.Join(dir, "overlay")
	must(os.Mkdir(dir, 0o700))
	must(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), block[1], 0o600))
	must(os.WriteFile(filepath.Join(dir, "msghandler.yaml"), []byte(change(string(settings))), 0o600))
	return dir
}

// render makes the manifests of the page's overlay.
func render(t *testing.T) rendered {
	t.Helper()
	return renderAt(t, overlay(t, func(settings string) string { return settings }))
}

// The overlay of the page has its image and its configuration in the pods: kustomize ignores names that do not match.
func TestOverlayOfThePageRenders(t *testing.T) {
	all := renderAt(t, overlay(t, func(settings string) string { return settings + "# mine\n" }))
	pod := all.deployment.Spec.Template.Spec
	if image := pod.Containers[0].Image; !strings.HasPrefix(image, "registry.example.com/msghandler@sha256:") {
		t.Errorf("the pods run %s", image)
	}
	if !strings.HasSuffix(all.config.Data["msghandler.yaml"], "# mine\n") {
		t.Errorf("the ConfigMap is\n%s", all.config.Data["msghandler.yaml"])
	}
	if !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool {
		return v.ConfigMap != nil && v.ConfigMap.Name == all.config.Name
	}) {
		t.Errorf("no volume has the ConfigMap %s", all.config.Name)
	}
}

// renderAt makes the manifests of a directory and reads each as its type; an unknown field fails.
func renderAt(t *testing.T, manifests string) (all rendered) {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), manifests)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resources.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		var service core.Service
		into, known := map[string]any{
			"Deployment": &all.deployment, "ConfigMap": &all.config, "Service": &service,
			"PodDisruptionBudget": &all.disruption, "NetworkPolicy": &all.network,
		}[r.GetKind()]
		if !known {
			t.Fatalf("a %s is not expected", r.GetKind())
		}
		if err := objects.Strict(text, into); err != nil {
			t.Errorf("%s %s: %v", r.GetKind(), r.GetName(), err)
		}
		if r.GetKind() == "Service" {
			all.services = append(all.services, service)
		}
		if r.GetNamespace() != "msghandler" {
			t.Errorf("%s %s is in namespace %q", r.GetKind(), r.GetName(), r.GetNamespace())
		}
	}
	return all
}

// selects says whether a selector finds the pods.
func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return len(selector) > 0
}

func TestSelectorsFindThePods(t *testing.T) {
	all := render(t)
	labels := all.deployment.Spec.Template.Labels
	selectors := map[string]map[string]string{
		"deployment": all.deployment.Spec.Selector.MatchLabels, "disruption": all.disruption.Spec.Selector.MatchLabels,
		"network": all.network.Spec.PodSelector.MatchLabels,
		"spread":  all.deployment.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	}
	for _, service := range all.services {
		selectors["service "+service.Name] = service.Spec.Selector
	}
	if len(selectors) != 6 {
		t.Errorf("selectors of %v", maps.Keys(selectors))
	}
	for what, selector := range selectors {
		if !selects(selector, labels) {
			t.Errorf("%s looks for %v, and the pods have %v", what, selector, labels)
		}
	}
}

func TestManifestPortsMatchTheConfiguration(t *testing.T) {
	all := render(t)
	ports := map[string]int32{}
	for _, port := range all.deployment.Spec.Template.Spec.Containers[0].Ports {
		ports[port.Name] = port.ContainerPort
	}
	var settings struct {
		GRPC, HTTP struct{ Addr string }
	}
	if err := yaml.Unmarshal([]byte(all.config.Data["msghandler.yaml"]), &settings); err != nil {
		t.Fatal(err)
	}
	if settings.GRPC.Addr != "0.0.0.0:9090" || ports["grpc"] != 9090 || settings.HTTP.Addr != "0.0.0.0:9091" ||
		ports["http"] != 9091 {
		t.Errorf("configured %+v, ports %v", settings, ports)
	}
	for _, service := range all.services {
		for _, port := range service.Spec.Ports {
			if ports[port.TargetPort.StrVal] != port.Port {
				t.Errorf("service %s leads to %s, and the ports are %v", service.Name, port.TargetPort.String(), ports)
			}
		}
	}
	for _, rule := range all.network.Spec.Ingress {
		for _, port := range rule.Ports {
			if _, known := ports[port.Port.StrVal]; !known {
				t.Errorf("the network policy opens %s, which there is not", port.Port.String())
			}
		}
	}
}

func TestPodSpecKeepsThePromises(t *testing.T) {
	all := render(t)
	pod := all.deployment.Spec.Template.Spec
	container := pod.Containers[0]
	if grace := pod.TerminationGracePeriodSeconds; grace == nil || *grace <= 20 {
		t.Error("a stop is cut off before shutdown.grace is over")
	}
	if links := pod.EnableServiceLinks; links == nil || *links {
		t.Error("Kubernetes puts variables like configuration into the pod")
	}
	if pod.Volumes[0].ConfigMap.Name != all.config.Name || !strings.HasPrefix(all.config.Name, "msghandler-") {
		t.Errorf("the pod reads %s, and the configuration is %s", pod.Volumes[0].ConfigMap.Name, all.config.Name)
	}
	if path := container.VolumeMounts[0].MountPath + "/msghandler.yaml"; container.Args[len(container.Args)-1] != path {
		t.Errorf("the container is started with %v, and the configuration is at %s", container.Args, path)
	}
	for path, probe := range map[string]*core.Probe{
		"/healthz": container.LivenessProbe, "/readyz": container.ReadinessProbe,
	} {
		if probe.HTTPGet.Path != path || probe.HTTPGet.Scheme != core.URISchemeHTTPS {
			t.Errorf("a probe asks %s for %s, and not HTTPS for %s", probe.HTTPGet.Scheme, probe.HTTPGet.Path, path)
		}
	}
	if c := container.SecurityContext; c == nil || c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem ||
		c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation || pod.SecurityContext.RunAsUser == nil {
		t.Error("the container may do more than its work needs")
	}
	if *all.deployment.Spec.Replicas < 2 ||
		all.disruption.Spec.MaxUnavailable.IntValue() >= int(*all.deployment.Spec.Replicas) {
		t.Error("all of them may be away at once")
	}
	if !strings.Contains(container.Image, "@sha256:") {
		t.Errorf("the image is %s, which another image may replace", container.Image)
	}
}

// Secrets are files that only the coordinator's group may read, and its configuration names each by its path.
func TestSecretsAreMountedPrivately(t *testing.T) {
	all := render(t)
	pod := all.deployment.Spec.Template.Spec
	container := pod.Containers[0]
	if len(container.EnvFrom) > 0 || pod.SecurityContext.FSGroup == nil {
		t.Error("secrets are in the environment, or no group reads them")
	}
	secrets := map[string]bool{}
	for _, volume := range pod.Volumes {
		if volume.Secret == nil {
			continue
		}
		if mode := volume.Secret.DefaultMode; mode == nil || *mode&0o007 != 0 {
			t.Errorf("everyone may read the secret %s", volume.Secret.SecretName)
		}
		for _, mount := range container.VolumeMounts {
			if mount.Name == volume.Name && mount.ReadOnly {
				secrets[mount.MountPath+"/"] = true
			}
		}
	}
	named := regexp.MustCompile(`/run/\S+/`).FindAllString(all.config.Data["msghandler.yaml"], -1)
	if len(named) == 0 {
		t.Error("the configuration names no secret")
	}
	for _, path := range named {
		if !secrets[path] {
			t.Errorf("the configuration names a file in %s, and mounted are %v", path, secrets)
		}
	}
}

// Every rule of the network policy names peers and ports. Other traffic is refused in both directions.
func TestNetworkPolicyNamesEachPeer(t *testing.T) {
	spec := render(t).network.Spec
	both := []networking.PolicyType{networking.PolicyTypeIngress, networking.PolicyTypeEgress}
	if !slices.Equal(spec.PolicyTypes, both) {
		t.Errorf("the policy is for %v", spec.PolicyTypes)
	}
	out := map[int]bool{}
	for _, rule := range spec.Ingress {
		if len(rule.From) == 0 || len(rule.Ports) == 0 {
			t.Errorf("ingress is open: %v", rule)
		}
	}
	for _, rule := range spec.Egress {
		if len(rule.To) == 0 || len(rule.Ports) == 0 {
			t.Errorf("egress is open: %v", rule)
		}
		for _, port := range rule.Ports {
			out[port.Port.IntValue()] = true
		}
	}
	for _, port := range []int{53, 6379, 5672, 9000} {
		if !out[port] {
			t.Errorf("the coordinator needs port %d, which is closed", port)
		}
	}
}

// Go must collect garbage before the kernel ends the process.
func TestGoMemoryLimitIsBelowPods(t *testing.T) {
	container := render(t).deployment.Spec.Template.Spec.Containers[0]
	i := slices.IndexFunc(container.Env, func(e core.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
	if i < 0 {
		t.Fatal("GOMEMLIMIT is missing")
	}
	limit, err := resource.ParseQuantity(strings.TrimSuffix(container.Env[i].Value, "B"))
	if pod := container.Resources.Limits.Memory(); err != nil || limit.Cmp(*pod) >= 0 || limit.Value() < pod.Value()/2 {
		t.Errorf("GOMEMLIMIT is %s (%v), and the pod may have %s", container.Env[i].Value, err, pod)
	}
}
