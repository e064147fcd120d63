package v1alpha1

// KeyPartType says which attribute of a request is part of a bucket's key.
// +kubebuilder:validation:Enum=Header;ClientIP;Method;Host;PathTemplate;PathVariable;Query;Cookie;Claim;Workload;Expression
type KeyPartType string

// Types of a KeyPart.
const (
	KeyPartHeader       KeyPartType = "Header"
	KeyPartClientIP     KeyPartType = "ClientIP"
	KeyPartMethod       KeyPartType = "Method"
	KeyPartHost         KeyPartType = "Host"
	KeyPartPathTemplate KeyPartType = "PathTemplate"
	KeyPartPathVariable KeyPartType = "PathVariable"
	KeyPartQuery        KeyPartType = "Query"
	KeyPartCookie       KeyPartType = "Cookie"
	KeyPartClaim        KeyPartType = "Claim"
	KeyPartWorkload     KeyPartType = "Workload"
	KeyPartExpression   KeyPartType = "Expression"
)

// WhenMissing says what happens to a request that lacks a key part.
// +kubebuilder:validation:Enum=Share;Skip;Deny
type WhenMissing string

const (
	// WhenMissingShare puts all requests without the value into one bucket.
	WhenMissingShare WhenMissing = "Share"
	// WhenMissingSkip lets the request pass this limit uncounted.
	WhenMissingSkip WhenMissing = "Skip"
	// WhenMissingDeny refuses the request with 403.
	WhenMissingDeny WhenMissing = "Deny"
)

// KeyPart tells one bucket of a limit from another. A client can invent values that nobody verifies, and each new one is a
// full bucket: beside a limit by such values, have one by ClientIP.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'Header' ? has(self.header) : !has(self.header)",message="header must be set when type is Header, such as {type: Header, header: {name: X-Api-Key}}, and only then",fieldPath=".header"
// +kubebuilder:validation:XValidation:rule="self.type == 'ClientIP' || !has(self.clientIP)",message="clientIP may be set only when type is ClientIP",fieldPath=".clientIP"
// +kubebuilder:validation:XValidation:rule="self.type == 'Host' || !has(self.host)",message="host may be set only when type is Host",fieldPath=".host"
// +kubebuilder:validation:XValidation:rule="self.type == 'PathVariable' ? has(self.pathVariable) : !has(self.pathVariable)",message="pathVariable must be set when type is PathVariable, such as {type: PathVariable, pathVariable: {name: id}}, and only then",fieldPath=".pathVariable"
// +kubebuilder:validation:XValidation:rule="self.type == 'Query' ? has(self.query) : !has(self.query)",message="query must be set when type is Query, such as {type: Query, query: {name: tenant}}, and only then",fieldPath=".query"
// +kubebuilder:validation:XValidation:rule="self.type == 'Cookie' ? has(self.cookie) : !has(self.cookie)",message="cookie must be set when type is Cookie, such as {type: Cookie, cookie: {name: session}}, and only then",fieldPath=".cookie"
// +kubebuilder:validation:XValidation:rule="self.type == 'Claim' ? has(self.claim) : !has(self.claim)",message="claim must be set when type is Claim, such as {type: Claim, claim: {name: sub}}, and only then",fieldPath=".claim"
// +kubebuilder:validation:XValidation:rule="self.type == 'Expression' ? has(self.expression) : !has(self.expression)",message="expression must be set when type is Expression, such as {type: Expression, expression: {value: \"request.path.split('/')[1]\"}}, and only then",fieldPath=".expression"
type KeyPart struct {
	// type is Header: the value of a request header; ClientIP: the client's address as spec.clientIP finds it; Method: the
	// HTTP method; Host: the host asked for; PathTemplate: the path template that fits; PathVariable: a variable of it; Query:
	// a parameter of the query; Cookie: a cookie; Claim: a claim of the bearer token; Workload: the name of the pod's
	// Deployment or other owner, so that workloads under one selector don't share buckets; or Expression: what an expression
	// of CEL gives.
	// +required
	Type KeyPartType `json:"type"`
	// header is set iff type is Header.
	// +optional
	Header *HeaderKeyPart `json:"header,omitempty"`
	// clientIP may be set when type is ClientIP. Default {whenMissing: Share}.
	// +optional
	ClientIP *ClientIPKeyPart `json:"clientIP,omitempty"`
	// host may be set when type is Host. Default {whenMissing: Share}.
	// +optional
	Host *HostKeyPart `json:"host,omitempty"`
	// pathVariable is set iff type is PathVariable.
	// +optional
	PathVariable *PathVariableKeyPart `json:"pathVariable,omitempty"`
	// query is set iff type is Query.
	// +optional
	Query *QueryKeyPart `json:"query,omitempty"`
	// cookie is set iff type is Cookie.
	// +optional
	Cookie *CookieKeyPart `json:"cookie,omitempty"`
	// claim is set iff type is Claim.
	// +optional
	Claim *ClaimKeyPart `json:"claim,omitempty"`
	// expression is set iff type is Expression.
	// +optional
	Expression *ExpressionKeyPart `json:"expression,omitempty"`
}

// HeaderKeyPart takes the value of a request header; repeated headers are joined by ", " in their order. A client can
// invent it, unless what stands in front verifies it.
type HeaderKeyPart struct {
	// name is the header's name, in any case; never Host, Transfer-Encoding or Trailer, nor Keep-Alive,
	// Proxy-Authenticate, Proxy-Authorization or Proxy-Connection, which are meant for one connection alone. 1 to 128 characters.
	// +required
	Name HeaderName `json:"name"`
	// whenMissing says what happens when the header is absent or empty. Share: all such requests share one bucket; Skip:
	// the limit does not govern them; Deny: they get 403. Default Share.
	// +kubebuilder:default=Share
	// +optional
	WhenMissing WhenMissing `json:"whenMissing,omitempty"`
}

// ClientIPKeyPart takes the client's address as spec.clientIP finds it.
type ClientIPKeyPart struct {
	// whenMissing says what happens when the address can't be known, for instance because every hop is trusted. Share: all
	// such requests share one bucket; Skip: the limit does not govern them; Deny: they get 403. Default Share.
	// +kubebuilder:default=Share
	// +optional
	WhenMissing WhenMissing `json:"whenMissing,omitempty"`
}

// HostKeyPart takes the host asked for, in lower case, without port and without a dot at its end. A client can ask for any
// host unless what stands in front routes by it.
type HostKeyPart struct {
	// whenMissing says what happens when the request names no host, as HTTP/1.0 may. Share: all such requests share one
	// bucket; Skip: the limit does not govern them; Deny: they get 403. Default Share.
	// +kubebuilder:default=Share
	// +optional
	WhenMissing WhenMissing `json:"whenMissing,omitempty"`
}

// PathVariableKeyPart takes what stands for a variable of the path template that fits. A client can invent it.
type PathVariableKeyPart struct {
	// name is the variable's name, in each template of the limit's matches: up to 32 letters, digits and _, a letter first.
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9_]*$')",message="must be the name of a variable: letters, digits and _, a letter first"
	// +required
	Name string `json:"name"`
}

// QueryKeyPart takes the value of a parameter of the query, decoded; of a repeated one the first. A client can invent it.
type QueryKeyPart struct {
	// name is the parameter's name, case-sensitive. 1 to 128 characters.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +required
	Name string `json:"name"`
	// whenMissing says what happens when the parameter is absent or empty. Share: all such requests share one bucket; Skip:
	// the limit does not govern them; Deny: they get 403. Default Share.
	// +kubebuilder:default=Share
	// +optional
	WhenMissing WhenMissing `json:"whenMissing,omitempty"`
}

// CookieKeyPart takes the value of a cookie, without quotes around it and percent-decoded; of a repeated one the first. A
// client can invent it.
type CookieKeyPart struct {
	// name is the cookie's name, case-sensitive. 1 to 128 characters.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches(r\"^[\\w!#-'*+.^`|~-]+$\")",message="must be a cookie's name: letters, digits and punctuation such as - or _, no = and no space"
	// +required
	Name string `json:"name"`
	// whenMissing says what happens when the cookie is absent or empty. Share: all such requests share one bucket; Skip: the
	// limit does not govern them; Deny: they get 403. Default Share.
	// +kubebuilder:default=Share
	// +optional
	WhenMissing WhenMissing `json:"whenMissing,omitempty"`
}

// ClaimKeyPart takes a claim of the bearer token (JWT) of the Authorization header. Nothing verifies the token's signature:
// the claim can be trusted only where what stands in front has authenticated the request, else a client can invent it.
type ClaimKeyPart struct {
	// name is the claim's name, such as sub, case-sensitive; its value is a string, a number or a boolean. A name with dots
	// that is no claim itself leads into objects, such as realm.tenant. 1 to 128 characters.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +required
	Name string `json:"name"`
	// whenMissing says what happens without a token that can be read, or without the claim in it. Share: all such requests
	// share one bucket; Skip: the limit does not govern them; Deny: they get 403. Default Share.
	// +kubebuilder:default=Share
	// +optional
	WhenMissing WhenMissing `json:"whenMissing,omitempty"`
}

// ExpressionKeyPart takes what an expression of CEL on request gives. A client can invent whatever it reads that nobody
// verifies.
type ExpressionKeyPart struct {
	// value is the expression, which must give a string, such as request.path.split('/')[1]. api/README.md lists the fields
	// of request. Another expression means other buckets. 1 to 1024 bytes.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Value string `json:"value"`
	// whenMissing says what happens when the expression fails, for instance because a header is missing that it reads, or
	// gives an empty string. Share: all such requests share one bucket; Skip: the limit does not govern them; Deny: they get
	// 403. Default Share.
	// +kubebuilder:default=Share
	// +optional
	WhenMissing WhenMissing `json:"whenMissing,omitempty"`
}

// ClientIPType says where the client's address is read.
// +kubebuilder:validation:Enum=Peer;XForwardedFor
type ClientIPType string

const (
	// ClientIPPeer takes the address of the TCP peer.
	ClientIPPeer ClientIPType = "Peer"
	// ClientIPXForwardedFor reads X-Forwarded-For from right to left past the trusted proxies.
	ClientIPXForwardedFor ClientIPType = "XForwardedFor"
)

// ClientIP says how a client's address is found and how much of it identifies one client.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'XForwardedFor' ? has(self.xForwardedFor) : !has(self.xForwardedFor)",message="xForwardedFor must be set when type is XForwardedFor, such as {trustedProxies: [10.42.7.0/24]}, and only then",fieldPath=".xForwardedFor"
type ClientIP struct {
	// type is Peer: the address of the TCP peer; or XForwardedFor: the right-most address of X-Forwarded-For that is no
	// trusted proxy, when the peer is one.
	// +required
	Type ClientIPType `json:"type"`
	// xForwardedFor is set iff type is XForwardedFor.
	// +optional
	XForwardedFor *XForwardedFor `json:"xForwardedFor,omitempty"`
	// ipv4PrefixLength is how many leading bits of an IPv4 address identify one client, 1 to 32. Default 32: each address.
	// +kubebuilder:default=32
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	// +optional
	IPv4PrefixLength *int32 `json:"ipv4PrefixLength,omitempty"`
	// ipv6PrefixLength is how many leading bits of an IPv6 address identify one client, 1 to 128. Default 64: one client
	// usually has that many addresses to choose from.
	// +kubebuilder:default=64
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	// +optional
	IPv6PrefixLength *int32 `json:"ipv6PrefixLength,omitempty"`
}

// XForwardedFor names the proxies whose X-Forwarded-For entries are believed.
type XForwardedFor struct {
	// trustedProxies are the CIDRs of the proxies in front, 1 to 64: the ingress only, never the whole range of the pods,
	// else any pod could pose as any client.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="must be a CIDR without host bits, such as 10.42.7.0/24, 192.0.2.1/32 or 2001:db8::/64"
	// +kubebuilder:validation:items:XValidation:rule="!self.endsWith('/0')",message="must not trust every address, which would leave none to be the client: name the ingress only"
	// +listType=set
	// +required
	TrustedProxies []string `json:"trustedProxies"`
}
