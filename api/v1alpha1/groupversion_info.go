// Package v1alpha1 holds the RateLimitPolicy API of group portero.dev: its types, its condition types and reasons,
// and the annotation keys that users write on pod templates.
//
// The control plane and users' programs import it. It stays free of everything but the standard library and
// apimachinery, so that importing it costs little.
//
// +kubebuilder:object:generate=true
// +groupName=portero.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of all types in this package.
var GroupVersion = schema.GroupVersion{Group: "portero.dev", Version: "v1alpha1"}

var (
	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the types of this package.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &RateLimitPolicy{}, &RateLimitPolicyList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
