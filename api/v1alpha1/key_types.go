package v1alpha1

// KeyPartType says which attribute of a request is part of a bucket's key.
// +kubebuilder:validation:Enum=Header;ClientIP
type KeyPartType string

// Types of a KeyPart.
const (
	KeyPartHeader   KeyPartType = "Header"
	KeyPartClientIP KeyPartType = "ClientIP"
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

// KeyPart tells one bucket of a limit from another.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'Header' ? has(self.header) : !has(self.header)",message="header must be set when type is Header, such as {type: Header, header: {name: X-Api-Key}}, and only then",fieldPath=".header"
// +kubebuilder:validation:XValidation:rule="self.type == 'ClientIP' || !has(self.clientIP)",message="clientIP may be set only when type is ClientIP",fieldPath=".clientIP"
type KeyPart struct {
	// type is Header: the value of a request header; or ClientIP: the client's address as spec.clientIP finds it.
	// +required
	Type KeyPartType `json:"type"`
	// header is set iff type is Header.
	// +optional
	Header *HeaderKeyPart `json:"header,omitempty"`
	// clientIP may be set when type is ClientIP. Default {whenMissing: Share}.
	// +optional
	ClientIP *ClientIPKeyPart `json:"clientIP,omitempty"`
}

// HeaderKeyPart takes the value of a request header; repeated headers are joined by ", " in their order.
type HeaderKeyPart struct {
	// name is the header's name, in any case; never Host, Transfer-Encoding or Trailer. 1 to 256 characters.
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
	// +listType=set
	// +required
	TrustedProxies []string `json:"trustedProxies"`
}
