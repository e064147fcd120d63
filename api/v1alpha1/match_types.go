package v1alpha1

// RequestMatch matches a request when all that it states holds.
//
// +kubebuilder:validation:XValidation:rule="has(self.methods) || has(self.path) || has(self.headers)",message="a match must state at least one of methods, path and headers; to match every request of a limit, leave out its matches"
type RequestMatch struct {
	// methods are HTTP methods, any of which fits. 1 to 16. Absent: every method.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=32
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[A-Z][A-Z0-9_-]*$')",message="must be an HTTP method in upper case, such as GET; methods are compared letter by letter"
	// +listType=set
	// +optional
	Methods []string `json:"methods,omitempty"`
	// path compares the path of the request. Absent: every path.
	// +optional
	Path *PathMatch `json:"path,omitempty"`
	// headers compare request headers; all of them must fit. 1 to 8. Absent: whatever the headers are.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	// +optional
	Headers []HeaderMatch `json:"headers,omitempty"`
}

// PathMatchType says how a path match's value is compared.
// +kubebuilder:validation:Enum=Exact;PathPrefix;RegularExpression
type PathMatchType string

// Types of a PathMatch.
const (
	PathMatchExact             PathMatchType = "Exact"
	PathMatchPathPrefix        PathMatchType = "PathPrefix"
	PathMatchRegularExpression PathMatchType = "RegularExpression"
)

// PathMatch compares the path of a request in normal form, without its query: percent-encodings that need not be are
// decoded, empty and dot elements are resolved. The app receives what the client sent.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'RegularExpression' || self.value.startsWith('/')",message="value must start with / when type is Exact or PathPrefix",fieldPath=".value"
// +kubebuilder:validation:XValidation:rule="self.type == 'RegularExpression' || !self.value.matches('//|/[.][.]?(/|$)|[?#]')",message="value must be a path in normal form when type is Exact or PathPrefix: no //, ? or #, and neither . nor .. as an element",fieldPath=".value"
// +kubebuilder:validation:XValidation:rule="self.type != 'RegularExpression' || '-'.matches(self.value) in [true, false]",message="value must be a regular expression in RE2 syntax when type is RegularExpression",fieldPath=".value"
type PathMatch struct {
	// type is Exact; PathPrefix: by whole elements, /api fits /api and /api/x, never /apiv2; or RegularExpression: RE2,
	// which must fit the whole path.
	// +required
	Type PathMatchType `json:"type"`
	// value is what the path is compared with, 1 to 256 characters. It starts with / unless type is RegularExpression.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +required
	Value string `json:"value"`
}

// HeaderName is the name of a header: letters, digits and !#$%&'*+-.^_|~ or a backquote. Upper and lower case are the same.
//
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9!#$%&\\'*+.^_`|~-]+$')",message="must be a header name: letters, digits and punctuation such as -, no colon and no space"
// +kubebuilder:validation:XValidation:rule="!(self.lowerAscii() in ['host', 'transfer-encoding', 'trailer'])",message="must not be Host, Transfer-Encoding or Trailer: an HTTP server takes them out of a request's headers"
type HeaderName string

// HeaderMatchType says how a header match's value is compared.
// +kubebuilder:validation:Enum=Exact;Prefix;RegularExpression
type HeaderMatchType string

// Types of a HeaderMatch.
const (
	HeaderMatchExact             HeaderMatchType = "Exact"
	HeaderMatchPrefix            HeaderMatchType = "Prefix"
	HeaderMatchRegularExpression HeaderMatchType = "RegularExpression"
)

// HeaderMatch compares one header; repeated headers are joined by ", " in their order first. An empty header counts as
// missing, and a missing one never fits.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'RegularExpression' || '-'.matches(self.value) in [true, false]",message="value must be a regular expression in RE2 syntax when type is RegularExpression",fieldPath=".value"
type HeaderMatch struct {
	// type is Exact, Prefix, or RegularExpression: RE2, which must fit the whole value. Default Exact.
	// +kubebuilder:default=Exact
	// +optional
	Type HeaderMatchType `json:"type,omitempty"`
	// name is the header's name, in any case; never Host, Transfer-Encoding or Trailer. 1 to 256 characters.
	// +required
	Name HeaderName `json:"name"`
	// value is what the header's value is compared with, 1 to 256 characters, case-sensitive.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +required
	Value string `json:"value"`
}
