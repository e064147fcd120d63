package ratelimit

import (
	"cmp"
	"crypto/sha256"
	"math/bits"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

// override is a compiled Override.
type override struct {
	config *bucketconfig.Override
	// limit is the overridden limit with this override's bucket; nil unless the type is Bucket.
	limit   *Limit
	matches []matcher // none: fits every request
}

// overrides finds the first of a limit's overrides that fits. Those that only compare one attribute with values are found
// by a look-up of the request's own value, however many they are; the others are asked one by one.
type overrides struct {
	all     []override
	indexes []overrideIndex // one per attribute
	others  []int           // those in no index, in their order
}

// overrideIndex leads from the value of an attribute, or its hash, to the first override that names it.
type overrideIndex struct {
	attribute uint16
	values    map[string]int
	sums      map[[sha256.Size]byte]int
}

// find gives the first that surely fits, nil when none does, and those before it that perhaps fit.
func (o *overrides) find(v *view) (sure *override, perhaps []*override) {
	first := len(o.all)
	for i := range o.indexes {
		first = min(first, o.indexes[i].find(v, first))
	}
	for _, i := range o.others {
		if i >= first {
			break
		}
		fits := fitsSurely
		if matches := o.all[i].matches; len(matches) > 0 {
			_, fits = firstFit(matches, v)
		}
		if fits == fitsPerhaps {
			perhaps = append(perhaps, &o.all[i])
		}
		if fits == fitsSurely {
			first = i
			break
		}
	}
	if first < len(o.all) {
		sure = &o.all[first]
	}
	return sure, perhaps
}

// stricter is the one of two overrides, nil standing for the limit's own bucket, that leaves a client less: Deny before
// any bucket, the slower bucket and then the smaller, Unlimited last.
func (l *Limit) stricter(a, b *override) *override {
	rank := func(o *override) int {
		switch {
		case o == nil || o.config.Type == overrideBucket:
			return 1
		case o.config.Type == overrideDeny:
			return 2
		}
		return 0
	}
	bucket := func(o *override) *bucketconfig.Bucket {
		if o == nil {
			return &l.Config.Bucket
		}
		return o.config.Bucket
	}
	order := rank(a) - rank(b)
	if order == 0 && rank(a) == 1 {
		order = compareRates(bucket(b), bucket(a))
		if order == 0 {
			order = cmp.Compare(bucket(b).Capacity, bucket(a).Capacity)
		}
	}
	if order < 0 {
		return b
	}
	return a
}

// compareRates compares what refills per time. The products take up to 75 bits.
func compareRates(a, b *bucketconfig.Bucket) int {
	high, low := bits.Mul64(uint64(a.RefillTokens), uint64(b.RefillIntervalUS))
	otherHigh, otherLow := bits.Mul64(uint64(b.RefillTokens), uint64(a.RefillIntervalUS))
	return cmp.Or(cmp.Compare(high, otherHigh), cmp.Compare(low, otherLow))
}

func (x *overrideIndex) find(v *view, otherwise int) int {
	found := v.value(x.attribute)
	if !found.present {
		return otherwise
	}
	if i, ok := x.values[found.text]; ok {
		otherwise = min(otherwise, i)
	}
	if len(x.sums) > 0 {
		if i, ok := x.sums[*v.sum(found)]; ok {
			otherwise = min(otherwise, i)
		}
	}
	return otherwise
}

// add appends an override, to the indexes where its matches allow it.
func (o *overrides) add(compiled override) {
	place := len(o.all)
	if len(compiled.matches) == 0 {
		o.others = append(o.others, place)
	}
	for i := range compiled.matches {
		if !compiled.matches[i].onlyComparesValues() {
			o.others = append(o.others, place)
			o.all = append(o.all, compiled)
			return
		}
	}
	for i := range compiled.matches {
		o.index(&compiled.matches[i].named[0], place)
	}
	if len(compiled.matches) > 0 {
		compiled.matches = nil // the indexes hold them
	}
	o.all = append(o.all, compiled)
}

// onlyComparesValues says whether a look-up of one attribute's value decides the matcher.
func (m *matcher) onlyComparesValues() bool {
	if len(m.methods) > 0 || len(m.ports) > 0 || m.hosts != nil || m.path != nil || m.grpc != nil || len(m.clients) > 0 || m.when != nil || len(m.named) != 1 {
		return false
	}
	kind := m.named[0].kind
	return kind == namedExact || kind == namedIn || kind == namedInSHA256
}

// index notes the values of an override that comes after all that are noted.
func (o *overrides) index(m *namedMatcher, place int) {
	var x *overrideIndex
	for i := range o.indexes {
		if o.indexes[i].attribute == m.attribute {
			x = &o.indexes[i]
		}
	}
	if x == nil {
		o.indexes = append(o.indexes, overrideIndex{
			attribute: m.attribute, values: map[string]int{}, sums: map[[sha256.Size]byte]int{},
		})
		x = &o.indexes[len(o.indexes)-1]
	}
	if m.kind == namedExact {
		note(x.values, m.value, place)
	}
	for value := range m.values {
		note(x.values, value, place)
	}
	for sum := range m.sums {
		note(x.sums, sum, place)
	}
}

func note[K comparable](places map[K]int, key K, place int) {
	if _, ok := places[key]; !ok {
		places[key] = place
	}
}
