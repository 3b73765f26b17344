package objects

import (
	"errors"
	"fmt"
	"maps"
	"regexp"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Object is what one document of a manifest describes, as the type of its kind.
type Object interface{ meta.Object }

// Kinds make an empty object for each apiVersion and kind.
type Kinds map[string]func() Object

var own = Kinds{
	"v1 ConfigMap":                       func() Object { return &core.ConfigMap{} },
	"v1 Service":                         func() Object { return &core.Service{} },
	"apps/v1 Deployment":                 func() Object { return &apps.Deployment{} },
	"policy/v1 PodDisruptionBudget":      func() Object { return &policy.PodDisruptionBudget{} },
	"networking.k8s.io/v1 NetworkPolicy": func() Object { return &networking.NetworkPolicy{} },
	"networking.k8s.io/v1 Ingress":       func() Object { return &networking.Ingress{} },
}

var separator = regexp.MustCompile(`(?m)^---$`)

// Read reads each document of a manifest strictly: an unknown field, and a kind beside the usual and more, are errors.
func Read(manifest string, more Kinds) (all []Object, err error) {
	kinds := maps.Clone(own)
	maps.Copy(kinds, more)
	for _, text := range separator.Split(manifest, -1) {
		var of meta.TypeMeta
		if err := yaml.Unmarshal([]byte(text), &of); err != nil {
			return nil, fmt.Errorf("%w in:\n%s", err, text)
		}
		if of.Kind == "" {
			continue // comments only
		}
		kind := of.APIVersion + " " + of.Kind
		empty, known := kinds[kind]
		if !known {
			return nil, fmt.Errorf("a %s is not expected", kind)
		}
		object := empty()
		if err := Strict([]byte(text), object); err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		all = append(all, object)
	}
	return all, nil
}

// Strict reads YAML as Kubernetes does: an unknown field, a field with other capitals and a field that stands twice are
// errors.
func Strict(text []byte, into any) error {
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	wrong, err := json.UnmarshalStrict(data, into)
	return errors.Join(append(wrong, err)...)
}

// Only gives the objects of one type.
func Only[T Object](all []Object) (some []T) {
	for _, object := range all {
		if one, is := object.(T); is {
			some = append(some, one)
		}
	}
	return some
}
