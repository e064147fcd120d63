package bucketconfig

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

const (
	// MaxBundleSize bounds a bundle in bytes: half of what a Secret may hold.
	MaxBundleSize = 512 << 10
	// bundleVersion is the version of the bundle's own shape; its records carry theirs.
	bundleVersion = 1
)

// Bundled is a policy of a bundle.
type Bundled struct {
	Name string
	// Record is nil in what DecodeBundle gives when Err says why the record can't be used.
	Record *Record
	Share  Share
	Err    error
}

type bundle struct {
	Bundle   int             `json:"bundle"`
	Policies []bundledPolicy `json:"policies"`
}

type bundledPolicy struct {
	Name   string `json:"name"`
	Record []byte `json:"record"` // as Encode makes it
	Share  Share  `json:"share"`
}

// EncodeBundle makes the policies of a namespace what stands in its Secret: for sidecars that start while Redis can't be reached, and for a
// manager that finds Redis empty. Equal policies give equal bytes, in whatever order. Of what exceeds MaxBundleSize the largest are left out,
// and omitted names them, sorted. A record that can't be encoded is left out too: its publication tells why.
func EncodeBundle(policies []Bundled) (data []byte, omitted []string, err error) {
	all := make([]bundledPolicy, 0, len(policies))
	for _, policy := range policies {
		record, err := Encode(policy.Record)
		if err != nil {
			continue
		}
		all = append(all, bundledPolicy{Name: policy.Name, Record: record, Share: policy.Share})
	}
	if all, omitted, err = fit(all); err != nil {
		return nil, nil, err
	}
	if data, err = json.Marshal(bundle{Bundle: bundleVersion, Policies: all}); err != nil {
		return nil, nil, fmt.Errorf("encode bundle: %w", err)
	}
	return data, omitted, nil
}

// fit leaves out the largest policies, of equal ones the later names, until the bundle keeps to its size.
func fit(all []bundledPolicy) (fitting []bundledPolicy, omitted []string, err error) {
	sizes := make(map[string]int, len(all))
	total := len(fmt.Sprintf(`{"bundle":%d,"policies":[]}`, bundleVersion))
	for i := range all {
		data, err := json.Marshal(&all[i])
		if err != nil {
			return nil, nil, fmt.Errorf("encode bundle: policy %s: %w", all[i].Name, err)
		}
		sizes[all[i].Name] = len(data) + len(",")
		total += sizes[all[i].Name]
	}
	slices.SortFunc(all, func(a, b bundledPolicy) int {
		return cmp.Or(cmp.Compare(sizes[a.Name], sizes[b.Name]), strings.Compare(a.Name, b.Name))
	})
	for total > MaxBundleSize {
		largest := all[len(all)-1].Name
		omitted, all, total = append(omitted, largest), all[:len(all)-1], total-sizes[largest]
	}
	slices.Sort(omitted)
	slices.SortFunc(all, func(a, b bundledPolicy) int { return strings.Compare(a.Name, b.Name) })
	return all, omitted, nil
}

// DecodeBundle reads a bundle. A record that can't be used is told by its policy's Err; an error is only what is no bundle at all, or one of
// a shape that a newer release wrote.
func DecodeBundle(data []byte) ([]Bundled, error) {
	if len(data) > MaxBundleSize {
		return nil, fmt.Errorf("decode bundle: %d bytes exceed %d", len(data), MaxBundleSize)
	}
	var read bundle
	if err := json.Unmarshal(data, &read); err != nil {
		return nil, fmt.Errorf("decode bundle: %w", err)
	}
	if read.Bundle != bundleVersion {
		return nil, fmt.Errorf("decode bundle: version %d is unknown here, this build reads %d", read.Bundle, bundleVersion)
	}
	policies := make([]Bundled, 0, len(read.Policies))
	for _, policy := range read.Policies {
		one := Bundled{Name: policy.Name, Share: policy.Share}
		record, err := Decode(policy.Record)
		switch {
		case err != nil:
			one.Err = err
		case record.Name != policy.Name:
			one.Err = fmt.Errorf("decode bundle: the record of policy %q names %q", policy.Name, record.Name)
		default:
			one.Record = record
		}
		// Without a share each sidecar would take the whole limit.
		if err := one.Share.validate(); err != nil {
			one.Record, one.Share, one.Err = nil, Share{}, cmp.Or(one.Err, fmt.Errorf("decode bundle: policy %q: %w", policy.Name, err))
		}
		policies = append(policies, one)
	}
	return policies, nil
}
