package translator

import (
	"cmp"
	"errors"
	"net/http"
	"net/netip"
	"regexp"
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
	defaultIPv4Prefix = 32
	defaultIPv6Prefix = 64
)

const maxTimeout = time.Second

// method is what the CRD's rule says. Methods are compared letter by letter, so that another would never fit.
var method = regexp.MustCompile(`^[A-Z][A-Z0-9_-]*$`)

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
		Response: bucketconfig.Response{
			RateLimitHeaders: string(cmp.Or(spec.Response.RateLimitHeaders, v1alpha1.RateLimitHeadersStandard)),
			StatusCode:       int(cmp.Or(spec.Response.StatusCode, defaultStatusCode)),
		},
	}
	if record.Selector, err = convertSelector(&spec.Selector, path.Child("selector")); err != nil {
		return nil, err
	}
	if record.ClientIP, err = convertClientIP(spec.ClientIP, path.Child("clientIP")); err != nil {
		return nil, err
	}
	if record.Exempt, err = convertMatches(spec.Exempt, path.Child("exempt")); err != nil {
		return nil, err
	}
	if record.Store, err = convertStore(&spec.Store, path.Child("store")); err != nil {
		return nil, err
	}
	for i := range spec.Limits {
		limit, err := convertLimit(&spec.Limits[i], path.Child("limits").Index(i))
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
				return nil, invalid(proxies.Index(i), "%q: must be a CIDR without host bits, such as 10.42.7.0/24, 192.0.2.1/32 or 2001:db8::/64: %w", cidr, err)
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

// checkCIDR refuses what reads as more than it says: host bits hint at a prefix length that was not meant, and a mapped
// prefix covers IPv4 addresses in disguise.
func checkCIDR(cidr string) error {
	prefix, err := netip.ParsePrefix(cidr)
	switch {
	case err != nil:
		return err
	case prefix.Addr().Is4In6():
		return errors.New("IPv4-mapped, write it as IPv4")
	case prefix != prefix.Masked():
		return errors.New("bits are set behind the prefix, the whole range is " + prefix.Masked().String())
	}
	return nil
}

func convertMatches(matches []v1alpha1.RequestMatch, path *field.Path) ([]bucketconfig.Match, error) {
	var converted []bucketconfig.Match
	for i := range matches {
		match, at := &matches[i], path.Index(i)
		var one bucketconfig.Match
		for j, name := range match.Methods {
			if !method.MatchString(name) {
				return nil, invalid(at.Child("methods").Index(j), "%q: must be an HTTP method in upper case, such as GET", name)
			}
			one.Methods = append(one.Methods, name)
		}
		if match.Path != nil {
			one.Path = &bucketconfig.StringMatch{Type: string(match.Path.Type), Value: match.Path.Value}
		}
		for _, header := range match.Headers {
			one.Headers = append(one.Headers, bucketconfig.NamedMatch{
				Name:  http.CanonicalHeaderKey(string(header.Name)),
				Type:  string(cmp.Or(header.Type, v1alpha1.HeaderMatchExact)),
				Value: header.Value,
			})
		}
		converted = append(converted, one)
	}
	return converted, nil
}

func convertLimit(limit *v1alpha1.Limit, path *field.Path) (bucketconfig.Limit, error) {
	converted := bucketconfig.Limit{Name: limit.Name}
	var err error
	if converted.Matches, err = convertMatches(limit.Matches, path.Child("matches")); err != nil {
		return converted, err
	}
	for i := range limit.KeyParts {
		part, err := convertKeyPart(&limit.KeyParts[i], path.Child("keyParts").Index(i))
		if err != nil {
			return converted, err
		}
		converted.KeyParts = append(converted.KeyParts, part)
	}
	interval, err := limit.Bucket.Refill.Interval.Parse()
	if err != nil {
		return converted, invalid(path.Child("bucket", "refill", "interval"), "%w", err)
	}
	converted.Bucket = bucketconfig.Bucket{
		Capacity:         limit.Bucket.Capacity,
		RefillTokens:     limit.Bucket.Refill.Tokens,
		RefillIntervalUS: interval.Microseconds(),
	}
	converted.Cost, err = convertCost(&limit.Cost, path.Child("cost"))
	return converted, err
}

func convertKeyPart(part *v1alpha1.KeyPart, path *field.Path) (bucketconfig.KeyPart, error) {
	converted := bucketconfig.KeyPart{Type: string(part.Type), WhenMissing: string(v1alpha1.WhenMissingShare)}
	if (part.Type == v1alpha1.KeyPartHeader) != (part.Header != nil) {
		return converted, invalid(path.Child("header"), "must be set when type is Header, such as {type: Header, header: {name: X-Api-Key}}, and only then")
	}
	if part.Type != v1alpha1.KeyPartClientIP && part.ClientIP != nil {
		return converted, invalid(path.Child("clientIP"), "may be set only when type is ClientIP")
	}
	if part.Header != nil {
		converted.Name = http.CanonicalHeaderKey(string(part.Header.Name))
		converted.WhenMissing = string(cmp.Or(part.Header.WhenMissing, v1alpha1.WhenMissingShare))
	}
	if part.ClientIP != nil {
		converted.WhenMissing = string(cmp.Or(part.ClientIP.WhenMissing, v1alpha1.WhenMissingShare))
	}
	return converted, nil
}

func convertCost(cost *v1alpha1.Cost, path *field.Path) (int64, error) {
	if *cost == (v1alpha1.Cost{}) {
		return defaultCost, nil
	}
	if cost.Type != v1alpha1.CostFixed {
		return 0, invalid(path.Child("type"), "%q: must be Fixed", cost.Type)
	}
	if cost.Fixed == nil {
		return 0, invalid(path.Child("fixed"), "must be set when type is Fixed, such as {type: Fixed, fixed: {tokens: 1}}")
	}
	return cmp.Or(cost.Fixed.Tokens, defaultCost), nil
}
