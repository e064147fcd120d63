package v1alpha1

// Duration is a string of one to four numbers with a unit each, of h, m, s and ms: "1h30m", "500ms". From 1ms to 366 days
// (8784h); at most 9999 hours, 999999 minutes, 99999999 seconds or milliseconds stand in one number.
//
// +kubebuilder:validation:MaxLength=40
// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,4}h|[0-9]{1,6}m|[0-9]{1,8}s|[0-9]{1,8}ms){1,4}$')",message="must be one to four whole numbers with a unit each, of h, m, s and ms, such as 500ms, 10s or 1h30m"
// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,4}h|[0-9]{1,6}m|[0-9]{1,8}s|[0-9]{1,8}ms){1,4}$') || (duration(self) >= duration('1ms') && duration(self) <= duration('8784h'))",message="must be from 1ms to 366 days (8784h)"
type Duration string
