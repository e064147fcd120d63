package translator

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/bucketconfig"
)

// convertSelector checks what Kubernetes wants of keys and values. A selector that no label can fit would leave pods
// unprotected in silence.
func convertSelector(selector *v1alpha1.LabelSelector, path *field.Path) (bucketconfig.Selector, error) {
	var converted bucketconfig.Selector
	labels := path.Child("matchLabels")
	// In order, so that of several faults the same one is told each time.
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		value := string(selector.MatchLabels[key])
		if err := checkKey(key, labels); err != nil {
			return converted, err
		}
		if err := checkValue(value, labels.Key(key)); err != nil {
			return converted, err
		}
		if converted.MatchLabels == nil {
			converted.MatchLabels = map[string]string{}
		}
		converted.MatchLabels[key] = value
	}
	for i, requirement := range selector.MatchExpressions {
		at := path.Child("matchExpressions").Index(i)
		if err := checkKey(requirement.Key, at.Child("key")); err != nil {
			return converted, err
		}
		one := bucketconfig.SelectorRequirement{Key: requirement.Key, Operator: string(requirement.Operator)}
		for j, value := range requirement.Values {
			if err := checkValue(string(value), at.Child("values").Index(j)); err != nil {
				return converted, err
			}
			one.Values = append(one.Values, string(value))
		}
		converted.MatchExpressions = append(converted.MatchExpressions, one)
	}
	return converted, nil
}

func checkKey(key string, path *field.Path) error {
	if complaints := validation.IsQualifiedName(key); len(complaints) > 0 {
		return invalid(path, "%q: must be a label key: %s", key, strings.Join(complaints, "; "))
	}
	return nil
}

func checkValue(value string, path *field.Path) error {
	if complaints := validation.IsValidLabelValue(value); len(complaints) > 0 {
		return invalid(path, "%q: must be a label value: %s", value, strings.Join(complaints, "; "))
	}
	return nil
}
