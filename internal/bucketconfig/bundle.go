package bucketconfig

import (
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
// manager that finds Redis empty. Equal policies give equal bytes, in whatever order. What can't be encoded is left out, and of what exceeds
// MaxBundleSize the largest; omitted names both.
func EncodeBundle(policies []Bundled) (data []byte, omitted []string, err error) {
	var all []bundledPolicy
	for _, policy := range policies {
		record, err := Encode(policy.Record)
		if err != nil {
			omitted = append(omitted, policy.Name)
			continue
		}
		all = append(all, bundledPolicy{Name: policy.Name, Record: record, Share: policy.Share})
	}
	for {
		slices.SortFunc(all, func(a, b bundledPolicy) int { return strings.Compare(a.Name, b.Name) })
		if data, err = json.Marshal(bundle{Bundle: bundleVersion, Policies: all}); err != nil {
			return nil, nil, fmt.Errorf("encode bundle: %w", err)
		}
		if len(data) <= MaxBundleSize {
			slices.Sort(omitted)
			return data, omitted, nil
		}
		largest := 0
		for i := range all {
			if len(all[i].Record) > len(all[largest].Record) {
				largest = i
			}
		}
		omitted = append(omitted, all[largest].Name)
		all = slices.Delete(all, largest, largest+1)
	}
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
		if one.Share.validate() != nil {
			one.Share = Share{Sidecars: 1}
		}
		policies = append(policies, one)
	}
	return policies, nil
}
