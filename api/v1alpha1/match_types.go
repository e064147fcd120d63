package v1alpha1

// RequestMatch matches a request when all that it states holds.
//
// +kubebuilder:validation:XValidation:rule="has(self.methods) || has(self.path) || has(self.headers) || has(self.hosts) || has(self.queryParams) || has(self.cookies) || has(self.ports) || has(self.clientCIDRs) || has(self.grpc) || has(self.when)",message="a match must state something, such as methods, path or headers; to match every request, leave out matches"
type RequestMatch struct {
	// methods are HTTP methods, any of which fits. 1 to 16. Absent: every method.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=24
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
	// hosts are names that the Host header (:authority) may hold, any of which fits; its port and a dot at its end are left
	// out, and upper and lower case are the same. In lower case, without port, such as shop.example.com; *.example.com is
	// every name below example.com. 1 to 16. Absent: every host.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^([*][.])?[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`
	// +listType=set
	// +optional
	Hosts []string `json:"hosts,omitempty"`
	// queryParams compare parameters of the query; all of them must fit. Names are case-sensitive, names and values decoded;
	// of a repeated parameter the first counts. 1 to 4. Absent: whatever the query is.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +listType=atomic
	// +optional
	QueryParams []NamedMatch `json:"queryParams,omitempty"`
	// cookies compare cookies; all of them must fit. Names are case-sensitive, values without quotes around them and
	// percent-decoded; of a repeated cookie the first counts. 1 to 4. Absent: whatever the cookies are.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:XValidation:rule="self.name.matches(r\"^[\\w!#-'*+.^`|~-]+$\")",message="name must be a cookie's name: letters, digits and punctuation such as - or _, no = and no space",fieldPath=".name"
	// +listType=atomic
	// +optional
	Cookies []NamedMatch `json:"cookies,omitempty"`
	// ports are names or numbers of the protected ports that the request may have come in by, any of which fits. Strings:
	// "8080". 1 to 8. Absent: every port.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=15
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[0-9]+$') ? self.matches('^[1-9][0-9]{0,4}$') && int(self) <= 65535 : self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$') && !self.contains('--')",message="must be the name of a container's port, such as http, or a number from 1 to 65535, such as \"8080\""
	// +listType=set
	// +optional
	Ports []string `json:"ports,omitempty"`
	// clientCIDRs are ranges of client addresses, any of which fits; the address is found as spec.clientIP says, which must
	// be set, and is not cut to its prefix lengths. An address that can't be known fits none. 1 to 32. Absent: every client.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="must be a CIDR without host bits, such as 10.42.7.0/24, 192.0.2.1/32 or 2001:db8::/64"
	// +listType=set
	// +optional
	ClientCIDRs []string `json:"clientCIDRs,omitempty"`
	// grpc compares the service and method of a gRPC call; other requests don't fit. Absent: every request.
	// +optional
	GRPC *GRPCMatch `json:"grpc,omitempty"`
	// when is an expression of CEL on request that must give true, for what the other fields can't say, such as
	// request.headers[?'x-plan'].orValue('free') == 'free'. api/README.md lists the fields of request. Where it fails, for
	// instance because a header is missing that it reads, the request is treated as whichever is stricter. 1 to 1024 bytes.
	// Absent: every request.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	When string `json:"when,omitempty"`
}

// PathMatchType says how a path match's value is compared.
// +kubebuilder:validation:Enum=Exact;PathPrefix;RegularExpression;Template
type PathMatchType string

// Types of a PathMatch.
const (
	PathMatchExact             PathMatchType = "Exact"
	PathMatchPathPrefix        PathMatchType = "PathPrefix"
	PathMatchRegularExpression PathMatchType = "RegularExpression"
	PathMatchTemplate          PathMatchType = "Template"
)

// PathMatch compares the path of a request in normal form, without its query: percent-encodings that need not be are
// decoded, empty and dot elements are resolved. The app receives what the client sent.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'RegularExpression' || self.value.startsWith('/')",message="value must start with / unless type is RegularExpression",fieldPath=".value"
// +kubebuilder:validation:XValidation:rule="self.type == 'RegularExpression' || !self.value.matches('//|/[.][.]?(/|$)|[?#]')",message="value must be a path in normal form unless type is RegularExpression: no //, ? or #, and neither . nor .. as an element",fieldPath=".value"
// +kubebuilder:validation:XValidation:rule="self.type != 'RegularExpression' || '-'.matches(self.value) in [true, false]",message="value must be a regular expression in RE2 syntax when type is RegularExpression",fieldPath=".value"
// +kubebuilder:validation:XValidation:rule="self.type != 'Template' || !self.value.startsWith('/') || self.value.matches(r'^(/([^{}/]*|[{][A-Za-z]\\w{0,31}[}]))*$')",message="value must be a path template when type is Template, such as /users/{id}/orders: a variable is a whole element and its name up to 32 letters, digits and _, a letter first",fieldPath=".value"
type PathMatch struct {
	// type is Exact; PathPrefix: by whole elements, /api fits /api and /api/x, never /apiv2; RegularExpression: RE2, which
	// must fit the whole path; or Template: /users/{id}/orders, in which a variable stands for one element that is not empty.
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
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:XValidation:rule="self.matches(r\"^[\\w!#-'*+.^`|~-]+$\")",message="must be a header name: letters, digits and punctuation such as -, no colon and no space"
// +kubebuilder:validation:XValidation:rule="!(self.lowerAscii() in ['host', 'transfer-encoding', 'trailer'])",message="must not be Host, Transfer-Encoding or Trailer: an HTTP server takes them out of a request's headers"
type HeaderName string

// ValueMatchType says how a value is compared.
// +kubebuilder:validation:Enum=Exact;Prefix;RegularExpression;Present;Absent;In;InSHA256
type ValueMatchType string

const (
	// ValueMatchExact wants the value itself.
	ValueMatchExact ValueMatchType = "Exact"
	// ValueMatchPrefix wants a value that starts so.
	ValueMatchPrefix ValueMatchType = "Prefix"
	// ValueMatchRegularExpression wants a whole value that a regular expression of RE2 fits.
	ValueMatchRegularExpression ValueMatchType = "RegularExpression"
	// ValueMatchPresent wants any value.
	ValueMatchPresent ValueMatchType = "Present"
	// ValueMatchAbsent wants none.
	ValueMatchAbsent ValueMatchType = "Absent"
	// ValueMatchIn wants one of a list.
	ValueMatchIn ValueMatchType = "In"
	// ValueMatchInSHA256 wants one whose SHA-256 is in a list, so that the policy doesn't give the values away.
	ValueMatchInSHA256 ValueMatchType = "InSHA256"
)

// ValueMatch compares a value. What is missing fits Absent and nothing else.
//
// +kubebuilder:validation:XValidation:rule="self.type in ['Exact', 'Prefix', 'RegularExpression'] ? has(self.value) : !has(self.value)",message="value must be set when type is Exact, Prefix or RegularExpression, and only then",fieldPath=".value"
// +kubebuilder:validation:XValidation:rule="self.type == 'In' ? has(self.values) : !has(self.values)",message="values must be set when type is In, such as {type: In, values: [free, trial]}, and only then",fieldPath=".values"
// +kubebuilder:validation:XValidation:rule="self.type == 'InSHA256' ? has(self.hashes) : !has(self.hashes)",message="hashes must be set when type is InSHA256, and only then",fieldPath=".hashes"
// +kubebuilder:validation:XValidation:rule="self.type != 'RegularExpression' || !has(self.value) || '-'.matches(self.value) in [true, false]",message="value must be a regular expression in RE2 syntax when type is RegularExpression",fieldPath=".value"
type ValueMatch struct {
	// type is Exact; Prefix; RegularExpression: RE2, which must fit the whole value; Present: any value; Absent: none; In:
	// one of values; or InSHA256: one whose SHA-256 is among hashes. Default Exact.
	// +kubebuilder:default=Exact
	// +optional
	Type ValueMatchType `json:"type,omitempty"`
	// value is what Exact, Prefix and RegularExpression compare with, 1 to 256 characters, case-sensitive.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Value string `json:"value,omitempty"`
	// values are what In compares with, 1 to 256 of 1 to 256 characters, case-sensitive.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=set
	// +optional
	Values []string `json:"values,omitempty"`
	// hashes are what InSHA256 compares with, 1 to 256: the SHA-256 of each value in lower-case hex, as
	// printf %s VALUE | sha256sum prints it. A value that can be guessed can be found from its hash.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[0-9a-f]{64}$`
	// +listType=set
	// +optional
	Hashes []string `json:"hashes,omitempty"`
}

// HeaderMatch compares one header; repeated headers are joined by ", " in their order first, and an empty one counts as
// missing.
type HeaderMatch struct {
	// name is the header's name, in any case; never Host, Transfer-Encoding or Trailer, nor Keep-Alive,
	// Proxy-Authenticate, Proxy-Authorization or Proxy-Connection, which are meant for one connection alone. 1 to 128 characters.
	// +required
	Name HeaderName `json:"name"`

	ValueMatch `json:",inline"`
}

// NamedMatch compares one query parameter or cookie. It is present even when it is empty, as in ?debug.
type NamedMatch struct {
	// name is the name of the query parameter or cookie, case-sensitive. 1 to 128 characters.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +required
	Name string `json:"name"`

	ValueMatch `json:",inline"`
}

// GRPCMatch compares service and method of a gRPC call, whose path is /package.Service/Method.
//
// +kubebuilder:validation:XValidation:rule="has(self.service) || has(self.method)",message="grpc must state service, method or both, such as {service: shop.v1.Cart, method: Add}"
type GRPCMatch struct {
	// service is the full name of the service, such as shop.v1.Cart, case-sensitive. Absent: every service.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches(r'^\\w+([.]\\w+)*$')",message="must be the full name of a gRPC service, such as shop.v1.Cart"
	// +optional
	Service string `json:"service,omitempty"`
	// method is the name of the method, such as Add, case-sensitive. Absent: every method.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches(r'^\\w+$')",message="must be the name of a gRPC method, such as Add"
	// +optional
	Method string `json:"method,omitempty"`
}
