package translator

import (
	"cmp"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/bucketconfig"
)

func (c *converter) limit(limit *v1alpha1.Limit, path *field.Path) (bucketconfig.Limit, error) {
	converted := bucketconfig.Limit{Name: limit.Name}
	var err error
	if converted.Shadow, err = convertMode(limit.Mode, path.Child("mode")); err != nil {
		return converted, err
	}
	if converted.Matches, err = c.matches(limit.Matches, path.Child("matches")); err != nil {
		return converted, err
	}
	for i := range limit.KeyParts {
		at := path.Child("keyParts").Index(i)
		part, err := convertKeyPart(&limit.KeyParts[i], at)
		if err != nil {
			return converted, err
		}
		if err := checkTemplates(&part, converted.Matches, at); err != nil {
			return converted, err
		}
		converted.KeyParts = append(converted.KeyParts, part)
	}
	if converted.Bucket, err = convertBucket(&limit.Bucket, path.Child("bucket")); err != nil {
		return converted, err
	}
	if converted.Overrides, err = c.overrides(limit.Overrides, path.Child("overrides")); err != nil {
		return converted, err
	}
	return converted, c.cost(&converted, &limit.Cost, path.Child("cost"))
}

func convertBucket(bucket *v1alpha1.Bucket, path *field.Path) (bucketconfig.Bucket, error) {
	interval, err := bucket.Refill.Interval.Parse()
	if err != nil {
		return bucketconfig.Bucket{}, invalid(path.Child("refill", "interval"), "%w", err)
	}
	return bucketconfig.Bucket{
		Capacity:         bucket.Capacity,
		RefillTokens:     bucket.Refill.Tokens,
		RefillIntervalUS: interval.Microseconds(),
	}, nil
}

// member is a struct of a union, such as a key part's header.
type member struct {
	name    string
	present bool
	// required is false where the member only holds what has a default.
	required bool
	example  string
}

// checkMember wants the member that bears the type's name, and no other.
func checkMember(m member, chosen bool, unionType string, path *field.Path) error {
	if m.present && !chosen {
		return invalid(path.Child(m.name), "must not be set when type is %s", unionType)
	}
	if m.required && chosen && !m.present {
		return invalid(path.Child(m.name), "must be set when type is %s, such as %s", unionType, m.example)
	}
	return nil
}

func convertKeyPart(part *v1alpha1.KeyPart, path *field.Path) (bucketconfig.KeyPart, error) {
	converted := bucketconfig.KeyPart{Type: string(part.Type), WhenMissing: string(v1alpha1.WhenMissingShare)}
	for _, union := range []struct {
		chosenBy v1alpha1.KeyPartType
		member   member
	}{
		{v1alpha1.KeyPartHeader, member{"header", part.Header != nil, true, "{type: Header, header: {name: X-Api-Key}}"}},
		{v1alpha1.KeyPartClientIP, member{"clientIP", part.ClientIP != nil, false, ""}},
		{v1alpha1.KeyPartHost, member{"host", part.Host != nil, false, ""}},
		{v1alpha1.KeyPartPathVariable, member{"pathVariable", part.PathVariable != nil, true, "{type: PathVariable, pathVariable: {name: id}}"}},
		{v1alpha1.KeyPartQuery, member{"query", part.Query != nil, true, "{type: Query, query: {name: tenant}}"}},
		{v1alpha1.KeyPartCookie, member{"cookie", part.Cookie != nil, true, "{type: Cookie, cookie: {name: session}}"}},
		{v1alpha1.KeyPartClaim, member{"claim", part.Claim != nil, true, "{type: Claim, claim: {name: sub}}"}},
		{v1alpha1.KeyPartExpression, member{"expression", part.Expression != nil, true, "{type: Expression, expression: {value: request.path.split('/')[1]}}"}},
	} {
		if err := checkMember(union.member, part.Type == union.chosenBy, string(part.Type), path); err != nil {
			return converted, err
		}
	}
	var whenMissing v1alpha1.WhenMissing
	switch {
	case part.Header != nil:
		converted.Name, whenMissing = http.CanonicalHeaderKey(string(part.Header.Name)), part.Header.WhenMissing
	case part.ClientIP != nil:
		whenMissing = part.ClientIP.WhenMissing
	case part.Host != nil:
		whenMissing = part.Host.WhenMissing
	case part.PathVariable != nil:
		converted.Name = part.PathVariable.Name
	case part.Query != nil:
		converted.Name, whenMissing = part.Query.Name, part.Query.WhenMissing
	case part.Cookie != nil:
		converted.Name, whenMissing = part.Cookie.Name, part.Cookie.WhenMissing
		if err := checkCookieName(part.Cookie.Name); err != nil {
			return converted, invalid(path.Child("cookie", "name"), "%q: %w", part.Cookie.Name, err)
		}
	case part.Claim != nil:
		converted.Name, whenMissing = part.Claim.Name, part.Claim.WhenMissing
	case part.Expression != nil:
		converted.Name, whenMissing = part.Expression.Value, part.Expression.WhenMissing
	}
	converted.WhenMissing = string(cmp.Or(whenMissing, v1alpha1.WhenMissingShare))
	return converted, nil
}

// checkTemplates wants a value of PathTemplate and PathVariable to be there in every request that the limit governs.
func checkTemplates(part *bucketconfig.KeyPart, matches []bucketconfig.Match, path *field.Path) error {
	if part.Type != string(v1alpha1.KeyPartPathTemplate) && part.Type != string(v1alpha1.KeyPartPathVariable) {
		return nil
	}
	if len(matches) == 0 {
		return invalid(path, "type %s needs matches, each with a path of type Template", part.Type)
	}
	for i := range matches {
		template := matches[i].Path
		if template == nil || template.Type != string(v1alpha1.PathMatchTemplate) {
			return invalid(path, "type %s needs a path of type Template in each of matches, and matches[%d] has none", part.Type, i)
		}
		if part.Type == string(v1alpha1.KeyPartPathTemplate) {
			continue
		}
		variables, err := bucketconfig.TemplateVariables(template.Value)
		if err != nil || !slices.Contains(variables, part.Name) {
			return invalid(path.Child("pathVariable", "name"), "%q: must be a variable of each of matches, and matches[%d] is %s", part.Name, i, template.Value)
		}
	}
	return nil
}

func (c *converter) overrides(overrides []v1alpha1.Override, path *field.Path) ([]bucketconfig.Override, error) {
	var converted []bucketconfig.Override
	for i := range overrides {
		override, at := &overrides[i], path.Index(i)
		if len(validation.IsDNS1123Label(override.Name)) > 0 {
			return nil, invalid(at.Child("name"), "%q: must be a DNS label: lower-case letters, digits and -, with a letter or digit at both ends", override.Name)
		}
		if slices.ContainsFunc(converted, func(other bucketconfig.Override) bool { return other.Name == override.Name }) {
			return nil, invalid(at.Child("name"), "%q: the names of overrides must differ", override.Name)
		}
		bucket := member{"bucket", override.Bucket != nil, true, "{type: Bucket, bucket: {capacity: 100, refill: {tokens: 10, interval: 1s}}}"}
		if err := checkMember(bucket, override.Type == v1alpha1.OverrideBucket, string(override.Type), at); err != nil {
			return nil, err
		}
		one := bucketconfig.Override{Name: override.Name, Type: string(override.Type)}
		var err error
		if one.Matches, err = c.matches(override.Matches, at.Child("matches")); err != nil {
			return nil, err
		}
		if override.Bucket != nil {
			converted, err := convertBucket(override.Bucket, at.Child("bucket"))
			if err != nil {
				return nil, err
			}
			one.Bucket = &converted
		}
		converted = append(converted, one)
	}
	return converted, nil
}

// cost fills in what the limit's requests cost. Its buckets must be known.
func (c *converter) cost(limit *bucketconfig.Limit, cost *v1alpha1.Cost, path *field.Path) error {
	limit.Cost = defaultCost
	if *cost == (v1alpha1.Cost{}) {
		return nil
	}
	// The default of fixed stays beside a type that was changed later: nobody wrote it.
	leftover := cost.Type != v1alpha1.CostFixed && cost.Fixed != nil && cost.Fixed.Tokens == defaultCost && len(cost.Fixed.Rules) == 0
	for _, union := range []struct {
		chosenBy v1alpha1.CostType
		member   member
	}{
		{v1alpha1.CostFixed, member{"fixed", cost.Fixed != nil && !leftover, true, "{type: Fixed, fixed: {tokens: 1}}"}},
		{v1alpha1.CostRequestHeader, member{"requestHeader", cost.RequestHeader != nil, true,
			"{type: RequestHeader, requestHeader: {name: X-Cost, default: 1, maximum: 100}}"}},
		{v1alpha1.CostResponseHeader, member{"responseHeader", cost.ResponseHeader != nil, true,
			"{type: ResponseHeader, responseHeader: {name: X-Cost, maximum: 100}}"}},
	} {
		if err := checkMember(union.member, cost.Type == union.chosenBy, string(cost.Type), path); err != nil {
			return err
		}
	}
	switch cost.Type {
	case v1alpha1.CostFixed:
		return c.fixedCost(limit, cost.Fixed, path.Child("fixed"))
	case v1alpha1.CostRequestHeader:
		header := cost.RequestHeader
		return headerCost(limit, cost.Type, header.Name, header.Default, header.Maximum, path.Child("requestHeader"))
	case v1alpha1.CostResponseHeader:
		header, at := cost.ResponseHeader, path.Child("responseHeader")
		if err := headerCost(limit, cost.Type, header.Name, cmp.Or(header.Default, defaultCost), header.Maximum, at); err != nil {
			return err
		}
		const most = "the most that it can owe"
		return checkCapacities(limit, header.Maximum, at.Child("maximum"), most, most)
	}
	return invalid(path.Child("type"), "%q: must be Fixed, RequestHeader or ResponseHeader", cost.Type)
}

func (c *converter) fixedCost(limit *bucketconfig.Limit, fixed *v1alpha1.FixedCost, path *field.Path) error {
	limit.Cost = cmp.Or(fixed.Tokens, defaultCost)
	if err := checkCost(limit, limit.Cost, path.Child("tokens")); err != nil {
		return err
	}
	for i := range fixed.Rules {
		rule, at := &fixed.Rules[i], path.Child("rules").Index(i)
		if len(rule.Matches) == 0 {
			return invalid(at.Child("matches"), "must hold at least one entry; fixed.tokens is the cost of what no rule fits")
		}
		matches, err := c.matches(rule.Matches, at.Child("matches"))
		if err != nil {
			return err
		}
		if err := checkCost(limit, rule.Tokens, at.Child("tokens")); err != nil {
			return err
		}
		limit.CostRules = append(limit.CostRules, bucketconfig.CostRule{Matches: matches, Tokens: rule.Tokens})
	}
	return nil
}

func headerCost(limit *bucketconfig.Limit, kind v1alpha1.CostType, name v1alpha1.HeaderName, standard, maximum int64, path *field.Path) error {
	limit.Cost = standard
	limit.CostSource = &bucketconfig.CostSource{Type: string(kind), Header: http.CanonicalHeaderKey(string(name)), Maximum: maximum}
	if maximum < standard || maximum > bucketconfig.MaxCapacity {
		return invalid(path.Child("maximum"), "%d: must be from default, %d, to %d", maximum, standard, bucketconfig.MaxCapacity)
	}
	return checkCost(limit, standard, path.Child("default"))
}

// checkCost wants a cost that every bucket it may meet can hold: what can be known is not left to be refused for ever.
func checkCost(limit *bucketconfig.Limit, cost int64, path *field.Path) error {
	if cost < 1 {
		return invalid(path, "%d: must be at least 1", cost)
	}
	return checkCapacities(limit, cost, path, "else no request could ever pass", "else its requests could never pass")
}

// checkCapacities wants every bucket to be that large; why says so of the limit's own bucket, and of overrides'.
func checkCapacities(limit *bucketconfig.Limit, cost int64, path *field.Path, why, whyOverride string) error {
	if cost > limit.Bucket.Capacity {
		return invalid(path, "%d: must be at most the bucket's capacity, %d, %s", cost, limit.Bucket.Capacity, why)
	}
	for i := range limit.Overrides {
		if bucket := limit.Overrides[i].Bucket; bucket != nil && cost > bucket.Capacity {
			return invalid(path, "%d: must be at most the capacity of override %s, %d, %s", cost, limit.Overrides[i].Name, bucket.Capacity, whyOverride)
		}
	}
	return nil
}
