package chart

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/msghandler/msghandler/test/deploy/kubernetes/objects"
)

// operators are the kinds of the Prometheus operator and of cert-manager.
var operators = objects.Kinds{
	"monitoring.coreos.com/v1 ServiceMonitor": func() objects.Object { return &monitoring.ServiceMonitor{} },
	"monitoring.coreos.com/v1 PodMonitor":     func() objects.Object { return &monitoring.PodMonitor{} },
	"monitoring.coreos.com/v1 PrometheusRule": func() objects.Object { return &monitoring.PrometheusRule{} },
	"cert-manager.io/v1 Certificate":          func() objects.Object { return &certmanager.Certificate{} },
}

func read(t *testing.T, manifest string) []objects.Object {
	t.Helper()
	all, err := objects.Read(manifest, operators)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Every value set gives objects that Kubernetes and the operators know, with names that each kind allows.
func TestEveryObjectIsValid(t *testing.T) {
	for name, values := range valueSets(t) {
		for _, object := range read(t, mustRender(t, usual, values)) {
			checkNames(t, name, object)
		}
	}
}

// checkNames holds an object's name against the rule for its kind, and its labels against the rule for values.
func checkNames(t *testing.T, where string, object objects.Object) {
	t.Helper()
	problems := validation.IsDNS1123Subdomain(object.GetName())
	if _, is := object.(*core.Service); is {
		problems = validation.IsDNS1035Label(object.GetName())
	}
	if _, is := object.(*apps.Deployment); is && len(object.GetName()) > 53 {
		problems = append(problems, "pods get names of more than 63 characters, with hashes of 10")
	}
	for _, value := range object.GetLabels() {
		problems = append(problems, validation.IsValidLabelValue(value)...)
	}
	for _, problem := range problems {
		t.Errorf("%s: %T %s: %s", where, object, object.GetName(), problem)
	}
}

// Two releases in one namespace share no object.
func TestReleasesShareNoObject(t *testing.T) {
	long := strings.Repeat("orders-", 7) // helm allows 53 characters
	values := valueSets(t)["cluster"]
	owners := map[string]string{}
	for _, name := range []string{
		"msghandler", "msghandler-grpc", "msghandler-msghandler", "msghandler-dashboard",
		"a", "a-msghandler", "a-b", "a.b", "1", "1a", "m-1a", "1.a", "123",
		long + "eu1", long + "eu2", long + "x", "true", "1e3", "x-" + strings.Repeat("y", 51),
	} {
		if len(name) > 53 {
			t.Fatalf("helm refuses the name %s", name)
		}
		for _, object := range read(t, mustRender(t, release{name, "shop"}, values)) {
			checkNames(t, "release "+name, object)
			key := reflect.TypeOf(object).String() + " " + object.GetName()
			if other := owners[key]; other != "" {
				t.Errorf("the releases %s and %s both have a %s", other, name, key)
			}
			owners[key] = name
		}
	}
}

// A pod belongs to its own release only: each selector names the release.
func TestSelectorsNameTheRelease(t *testing.T) {
	for set, values := range valueSets(t) {
		for what, selector := range selectors(read(t, mustRender(t, release{"orders", "shop"}, values))) {
			want := map[string]string{"app.kubernetes.io/name": "msghandler", "app.kubernetes.io/instance": "orders"}
			if what == "*v1.ServiceMonitor" {
				want["app.kubernetes.io/component"] = "http"
			}
			if !maps.Equal(selector, want) {
				t.Errorf("%s: %s looks for %v", set, what, selector)
			}
		}
	}
}

// selectors of the objects that have one.
func selectors(all []objects.Object) map[string]map[string]string {
	found := map[string]map[string]string{}
	for _, object := range all {
		what := reflect.TypeOf(object).String()
		switch o := object.(type) {
		case *apps.Deployment:
			found[what] = o.Spec.Selector.MatchLabels
			found["pods"] = o.Spec.Template.Labels
		case *core.Service:
			found[what+" "+o.Name] = o.Spec.Selector
		case *policy.PodDisruptionBudget:
			found[what] = o.Spec.Selector.MatchLabels
		case *networking.NetworkPolicy:
			found[what] = o.Spec.PodSelector.MatchLabels
		case *monitoring.ServiceMonitor:
			found[what] = o.Spec.Selector.MatchLabels
		case *monitoring.PodMonitor:
			found[what] = o.Spec.Selector.MatchLabels
		}
	}
	return found
}

// helm upgrade from any value set to any other changes no field that Kubernetes keeps for ever.
func TestUpgradeChangesNoImmutableField(t *testing.T) {
	immutable := map[string]map[string]any{}
	for set, values := range valueSets(t) {
		kept := map[string]any{}
		for _, object := range read(t, mustRender(t, usual, values)) {
			switch o := object.(type) {
			case *apps.Deployment:
				kept["selector of "+o.Name] = o.Spec.Selector
			case *core.Service:
				kept["address of "+o.Name] = o.Spec.ClusterIP
			}
		}
		if len(kept) != 3 {
			t.Errorf("%s has %v", set, slices.Sorted(maps.Keys(kept)))
		}
		immutable[set] = kept
	}
	for set, kept := range immutable {
		if !reflect.DeepEqual(kept, immutable["minimal"]) {
			t.Errorf("an upgrade from minimal to %s changes %v to %v", set, immutable["minimal"], kept)
		}
	}
}
