package translator

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/bucketconfig"
)

// What the CRD's rules say.
var (
	// Methods are compared letter by letter, so that another would never fit.
	method      = regexp.MustCompile(`^[A-Z][A-Z0-9_-]*$`)
	cookieName  = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	grpcService = regexp.MustCompile(`^\w+([.]\w+)*$`)
	grpcMethod  = regexp.MustCompile(`^\w+$`)
	sha256Hex   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// converter converts matches and what holds them. It knows of the policy what they depend on.
type converter struct {
	clientKnown bool // spec.clientIP is set
}

func (c *converter) matches(matches []v1alpha1.RequestMatch, path *field.Path) ([]bucketconfig.Match, error) {
	var converted []bucketconfig.Match
	for i := range matches {
		one, err := c.match(&matches[i], path.Index(i))
		if err != nil {
			return nil, err
		}
		converted = append(converted, one)
	}
	return converted, nil
}

func (c *converter) match(match *v1alpha1.RequestMatch, path *field.Path) (bucketconfig.Match, error) {
	var converted bucketconfig.Match
	var err error
	if len(match.ClientCIDRs) > 0 && !c.clientKnown {
		return converted, invalid(path.Child("clientCIDRs"), "needs spec.clientIP: say where the client's address is read, type Peer or XForwardedFor")
	}
	if converted.Path, err = convertPath(match.Path, path.Child("path")); err != nil {
		return converted, err
	}
	for i := range match.Headers {
		header := &match.Headers[i]
		one, err := convertValue(&header.ValueMatch, path.Child("headers").Index(i))
		if err != nil {
			return converted, err
		}
		one.Name = http.CanonicalHeaderKey(string(header.Name))
		converted.Headers = append(converted.Headers, one)
	}
	if converted.QueryParams, err = convertNamed(match.QueryParams, path.Child("queryParams"), checkQueryName); err != nil {
		return converted, err
	}
	if converted.Cookies, err = convertNamed(match.Cookies, path.Child("cookies"), checkCookieName); err != nil {
		return converted, err
	}
	if converted.GRPC, err = convertGRPC(match.GRPC, path.Child("grpc")); err != nil {
		return converted, err
	}
	converted.When = match.When
	for _, list := range []struct {
		name  string
		from  []string
		to    *[]string
		check func(string) error
	}{
		{"methods", match.Methods, &converted.Methods, checkMethod},
		{"hosts", match.Hosts, &converted.Hosts, checkHost},
		{"ports", match.Ports, &converted.Ports, checkPort},
		{"clientCIDRs", match.ClientCIDRs, &converted.ClientCIDRs, checkCIDR},
	} {
		for i, value := range list.from {
			if err := list.check(value); err != nil {
				return converted, invalid(path.Child(list.name).Index(i), "%q: %w", value, err)
			}
			*list.to = append(*list.to, value)
		}
	}
	return converted, nil
}

func convertPath(match *v1alpha1.PathMatch, path *field.Path) (*bucketconfig.StringMatch, error) {
	if match == nil {
		return nil, nil
	}
	if match.Type == v1alpha1.PathMatchTemplate {
		if _, err := bucketconfig.TemplateVariables(match.Value); err != nil {
			return nil, invalid(path.Child("value"), "%w", err)
		}
	}
	return &bucketconfig.StringMatch{Type: string(match.Type), Value: match.Value}, nil
}

func convertNamed(matches []v1alpha1.NamedMatch, path *field.Path, check func(string) error) ([]bucketconfig.NamedMatch, error) {
	var converted []bucketconfig.NamedMatch
	for i := range matches {
		if err := check(matches[i].Name); err != nil {
			return nil, invalid(path.Index(i).Child("name"), "%q: %w", matches[i].Name, err)
		}
		one, err := convertValue(&matches[i].ValueMatch, path.Index(i))
		if err != nil {
			return nil, err
		}
		one.Name = matches[i].Name
		converted = append(converted, one)
	}
	return converted, nil
}

// convertValue leaves the name to the caller.
func convertValue(match *v1alpha1.ValueMatch, path *field.Path) (bucketconfig.NamedMatch, error) {
	kind := cmp.Or(match.Type, v1alpha1.ValueMatchExact)
	converted := bucketconfig.NamedMatch{Type: string(kind), Value: match.Value}
	var wantsValue bool
	switch kind {
	case v1alpha1.ValueMatchExact, v1alpha1.ValueMatchPrefix, v1alpha1.ValueMatchRegularExpression:
		wantsValue = true
	case v1alpha1.ValueMatchPresent, v1alpha1.ValueMatchAbsent, v1alpha1.ValueMatchIn, v1alpha1.ValueMatchInSHA256:
	default:
		return converted, invalid(path.Child("type"), "%q: must be Exact, Prefix, RegularExpression, Present, Absent, In or InSHA256", kind)
	}
	if wantsValue != (match.Value != "") {
		return converted, invalid(path.Child("value"), "must be set when type is Exact, Prefix or RegularExpression, and only then; type is %s", kind)
	}
	if (kind == v1alpha1.ValueMatchIn) != (len(match.Values) > 0) {
		return converted, invalid(path.Child("values"), "must be set when type is In, such as {type: In, values: [free, trial]}, and only then; type is %s", kind)
	}
	if (kind == v1alpha1.ValueMatchInSHA256) != (len(match.Hashes) > 0) {
		return converted, invalid(path.Child("hashes"), "must be set when type is InSHA256, and only then; type is %s", kind)
	}
	for i, value := range match.Values {
		if value == "" {
			return converted, invalid(path.Child("values").Index(i), "is empty: an empty value counts as missing and never fits")
		}
		converted.Values = append(converted.Values, value)
	}
	for i, hash := range match.Hashes {
		if !sha256Hex.MatchString(hash) {
			return converted, invalid(path.Child("hashes").Index(i), "%q: must be a SHA-256 in lower-case hex, as printf %%s VALUE | sha256sum prints it", hash)
		}
		converted.Values = append(converted.Values, hash)
	}
	return converted, nil
}

func convertGRPC(match *v1alpha1.GRPCMatch, path *field.Path) (*bucketconfig.GRPCMatch, error) {
	switch {
	case match == nil:
		return nil, nil
	case match.Service == "" && match.Method == "":
		return nil, invalid(path, "must state service, method or both, such as {service: shop.v1.Cart, method: Add}")
	case match.Service != "" && !grpcService.MatchString(match.Service):
		return nil, invalid(path.Child("service"), "%q: must be the full name of a gRPC service, such as shop.v1.Cart", match.Service)
	case match.Method != "" && !grpcMethod.MatchString(match.Method):
		return nil, invalid(path.Child("method"), "%q: must be the name of a gRPC method, such as Add", match.Method)
	}
	return &bucketconfig.GRPCMatch{Service: match.Service, Method: match.Method}, nil
}

func checkMethod(name string) error {
	if !method.MatchString(name) {
		return errors.New("must be an HTTP method in upper case, such as GET")
	}
	return nil
}

func checkQueryName(name string) error {
	if name == "" {
		return errors.New("must be the name of a parameter")
	}
	return nil
}

func checkCookieName(name string) error {
	if !cookieName.MatchString(name) {
		return errors.New("must be a cookie's name: letters, digits and punctuation such as - or _, no = and no space")
	}
	return nil
}

func checkHost(host string) error {
	if complaints := validation.IsDNS1123Subdomain(strings.TrimPrefix(host, "*.")); len(complaints) > 0 {
		return errors.New("must be a host name in lower case without port, such as shop.example.com, or *.example.com for every name below it")
	}
	return nil
}

func checkPort(port string) error {
	if number, err := strconv.Atoi(port); err == nil && strconv.Itoa(number) == port && len(validation.IsValidPortNum(number)) == 0 {
		return nil
	}
	if len(validation.IsValidPortName(port)) > 0 {
		return errors.New(`must be the name of a container's port, such as http, or a number from 1 to 65535, such as "8080"`)
	}
	return nil
}

// checkCIDR refuses what reads as more than it says: host bits hint at a prefix length that was not meant, and a mapped
// prefix covers IPv4 addresses in disguise.
func checkCIDR(cidr string) error {
	prefix, err := netip.ParsePrefix(cidr)
	switch {
	case err != nil:
	case prefix.Addr().Is4In6():
		err = errors.New("IPv4-mapped, write it as IPv4")
	case prefix != prefix.Masked():
		err = errors.New("bits are set behind the prefix, the whole range is " + prefix.Masked().String())
	default:
		return nil
	}
	return fmt.Errorf("must be a CIDR without host bits, such as 10.42.7.0/24, 192.0.2.1/32 or 2001:db8::/64: %w", err)
}
