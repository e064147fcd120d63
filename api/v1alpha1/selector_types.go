package v1alpha1

// LabelSelector has the JSON of metav1.LabelSelector, with bounds. The empty selector selects all pods of the namespace.
type LabelSelector struct {
	// matchLabels maps label keys to the values that pods must have, all of them. At most 64.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && !format.qualifiedName().validate(k).hasValue())",message="each key must be a label key: an optional DNS prefix and /, then up to 63 letters, digits, -, _ or ., such as app or app.kubernetes.io/name"
	// +optional
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`
	// matchExpressions are requirements that must all hold. At most 64.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	MatchExpressions []LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}

// LabelValue is the value of a label: up to 63 letters, digits, -, _ or ., or empty. It is a type of its own because the
// values of a map can be bounded in no other way.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="!format.labelValue().validate(self).hasValue()",message="must be a label value: empty, or up to 63 letters, digits, -, _ or ., with a letter or digit at both ends"
type LabelValue string

// LabelSelectorRequirement relates a key to values.
//
// +kubebuilder:validation:XValidation:rule="self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0",message="values must hold at least one value when operator is In or NotIn, and none when it is Exists or DoesNotExist",fieldPath=".values"
type LabelSelectorRequirement struct {
	// key is the label's key, such as app or app.kubernetes.io/name.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="must be a label key: an optional DNS prefix and /, then up to 63 letters, digits, -, _ or ., such as app or app.kubernetes.io/name"
	// +required
	Key string `json:"key"`
	// operator relates the label's value to values: In, NotIn, Exists or DoesNotExist. A pod without the label fits NotIn.
	// +required
	Operator LabelSelectorOperator `json:"operator"`
	// values are what In and NotIn compare with; at least one for those, none for the others. At most 64.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Values []LabelValue `json:"values,omitempty"`
}

// LabelSelectorOperator relates a label's value to a requirement's values.
// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
type LabelSelectorOperator string

// Operators of a LabelSelectorRequirement.
const (
	LabelSelectorOpIn           LabelSelectorOperator = "In"
	LabelSelectorOpNotIn        LabelSelectorOperator = "NotIn"
	LabelSelectorOpExists       LabelSelectorOperator = "Exists"
	LabelSelectorOpDoesNotExist LabelSelectorOperator = "DoesNotExist"
)
