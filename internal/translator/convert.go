package translator

import (
	"cmp"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/bucketconfig"
)

// The defaults of the CRD, for policies that never passed an API server.
const (
	defaultTimeout    = "10ms"
	defaultStatusCode = 429
	defaultCost       = 1
	defaultBodyType   = "text/plain; charset=utf-8"
	defaultIPv4Prefix = 32
	defaultIPv6Prefix = 64
)

const maxTimeout = time.Second

func convert(policy *v1alpha1.RateLimitPolicy) (*bucketconfig.Record, error) {
	path := field.NewPath("spec")
	spec := &policy.Spec
	shadow, err := convertMode(spec.Mode, path.Child("mode"))
	if err != nil {
		return nil, err
	}
	record := &bucketconfig.Record{
		Schema:     bucketconfig.SchemaVersion,
		Kind:       bucketconfig.Kind,
		Name:       policy.Name,
		UID:        string(policy.UID),
		Generation: policy.Generation,
		Order:      order(policy),
		Shadow:     shadow,
	}
	if record.Selector, err = convertSelector(&spec.Selector, path.Child("selector")); err != nil {
		return nil, err
	}
	if record.ClientIP, err = convertClientIP(spec.ClientIP, path.Child("clientIP")); err != nil {
		return nil, err
	}
	if record.Store, err = convertStore(&spec.Store, path.Child("store")); err != nil {
		return nil, err
	}
	if record.Response, err = convertResponse(&spec.Response, path.Child("response")); err != nil {
		return nil, err
	}
	c := converter{clientKnown: record.ClientIP != nil}
	if record.Exempt, err = c.matches(spec.Exempt, path.Child("exempt")); err != nil {
		return nil, err
	}
	for i := range spec.Limits {
		limit, err := c.limit(&spec.Limits[i], path.Child("limits").Index(i))
		if err != nil {
			return nil, err
		}
		record.Limits = append(record.Limits, limit)
	}
	return record, nil
}

// generationBits leaves room for two million generations in each second of creation, and for seconds until 2106, below
// the 2^53 that Redis' Lua counts to.
const generationBits = 21

// order is greater for a later state of a policy of one name, over deletion and re-creation too: creation time, then
// generation. A generation that outgrows its bits stays at the last value, and buckets then take the newest caller's word.
func order(policy *v1alpha1.RateLimitPolicy) int64 {
	var created int64
	if !policy.CreationTimestamp.IsZero() {
		created = policy.CreationTimestamp.Unix()
	}
	return created<<generationBits | min(policy.Generation, 1<<generationBits-1)
}

func convertMode(mode v1alpha1.Mode, path *field.Path) (shadow bool, err error) {
	switch mode {
	case v1alpha1.ModeEnforce, "":
		return false, nil
	case v1alpha1.ModeShadow:
		return true, nil
	}
	return false, invalid(path, "%q: must be Enforce or Shadow", mode)
}

func convertStore(store *v1alpha1.Store, path *field.Path) (bucketconfig.Store, error) {
	timeout, err := cmp.Or(store.Timeout, defaultTimeout).Parse()
	if err != nil {
		return bucketconfig.Store{}, invalid(path.Child("timeout"), "%w", err)
	}
	if timeout > maxTimeout {
		return bucketconfig.Store{}, invalid(path.Child("timeout"), "%q: must be at most 1s: it is how long every request may have to wait for Redis", store.Timeout)
	}
	return bucketconfig.Store{
		TimeoutUS: timeout.Microseconds(),
		OnFailure: string(cmp.Or(store.OnFailure, v1alpha1.OnFailureLocal)),
	}, nil
}

func convertResponse(response *v1alpha1.Response, path *field.Path) (bucketconfig.Response, error) {
	converted := bucketconfig.Response{
		RateLimitHeaders: string(cmp.Or(response.RateLimitHeaders, v1alpha1.RateLimitHeadersStandard)),
		StatusCode:       int(cmp.Or(response.StatusCode, defaultStatusCode)),
	}
	if response.Body == nil {
		return converted, nil
	}
	body := path.Child("body")
	converted.ContentType = cmp.Or(response.Body.ContentType, defaultBodyType)
	converted.Body = response.Body.Template
	if !mediaType.MatchString(converted.ContentType) {
		return converted, invalid(body.Child("contentType"), "%q: must be a media type, such as application/json or text/html; charset=utf-8", converted.ContentType)
	}
	if size := len(converted.Body); size < 1 || size > bucketconfig.MaxBody {
		return converted, invalid(body.Child("template"), "is %d bytes: must be 1 to %d; leave out body to answer with problem details", size, bucketconfig.MaxBody)
	}
	return converted, nil
}

// mediaType is what the CRD's rule says. No line break may get into a field.
var mediaType = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*( *;[ -~]+)?$`)

func convertClientIP(clientIP *v1alpha1.ClientIP, path *field.Path) (*bucketconfig.ClientIP, error) {
	if clientIP == nil {
		return nil, nil
	}
	converted := &bucketconfig.ClientIP{
		Type:             string(clientIP.Type),
		IPv4PrefixLength: prefixLength(clientIP.IPv4PrefixLength, defaultIPv4Prefix),
		IPv6PrefixLength: prefixLength(clientIP.IPv6PrefixLength, defaultIPv6Prefix),
	}
	// The record's 0 means the default, so a stated 0 must end here.
	if converted.IPv4PrefixLength == 0 {
		return nil, invalid(path.Child("ipv4PrefixLength"), "0: all clients would be one; must be 1 to 32")
	}
	if converted.IPv6PrefixLength == 0 {
		return nil, invalid(path.Child("ipv6PrefixLength"), "0: all clients would be one; must be 1 to 128")
	}
	if forwarded := clientIP.Type == v1alpha1.ClientIPXForwardedFor; forwarded != (clientIP.XForwardedFor != nil) {
		return nil, invalid(path.Child("xForwardedFor"), "must be set when type is XForwardedFor, such as {trustedProxies: [10.42.7.0/24]}, and only then")
	}
	if clientIP.XForwardedFor != nil {
		proxies := path.Child("xForwardedFor", "trustedProxies")
		for i, cidr := range clientIP.XForwardedFor.TrustedProxies {
			if err := checkCIDR(cidr); err != nil {
				return nil, invalid(proxies.Index(i), "%q: %w", cidr, err)
			}
			if strings.HasSuffix(cidr, "/0") {
				return nil, invalid(proxies.Index(i), "%q: must not trust every address, which would leave none to be the client: name the ingress only", cidr)
			}
			converted.TrustedProxies = append(converted.TrustedProxies, cidr)
		}
	}
	return converted, nil
}

func prefixLength(length *int32, ifAbsent int) int {
	if length == nil {
		return ifAbsent
	}
	return int(*length)
}
