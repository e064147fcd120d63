// Package translator turns policies into the records that sidecars enforce, or says why one can't be.
//
// It is pure: the controllers call it, and whatever else must know what a policy means. It checks again what the API
// server checks, because an object may have been stored before a rule existed, and compiles each record as a sidecar
// will, so that what a sidecar would refuse ends as a condition.
package translator

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
)

// MaxSpecJSON bounds the JSON of a policy's spec. The lists' bounds alone would admit megabytes, and client-side apply
// keeps a second copy in an annotation that can't exceed 256 KiB.
const MaxSpecJSON = 192 << 10

// Error is a policy that can't be translated. The user must act: trying again gives the same.
type Error struct {
	// Reason is that of the condition Accepted: Invalid or TooLarge.
	Reason v1alpha1.ConditionReason
	// Field is the path of the field that is wrong, such as spec.limits[0].bucket.refill.interval.
	Field string
	// Err tells the bad value and the way out.
	Err error
}

// Error names field, value and way out.
func (e *Error) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

func invalid(path *field.Path, format string, args ...any) error {
	return &Error{Reason: v1alpha1.ReasonInvalid, Field: path.String(), Err: fmt.Errorf(format, args...)}
}

// Translate makes a policy's record. The policy is not changed and nothing of it is shared with the record. Fields that
// are absent get the defaults that the API server would give them. Every error is an *Error.
func Translate(policy *v1alpha1.RateLimitPolicy) (*bucketconfig.Record, error) {
	if err := checkSize(policy); err != nil {
		return nil, err
	}
	record, err := convert(policy)
	if err != nil {
		return nil, err
	}
	if err := check(record); err != nil {
		return nil, err
	}
	return record, nil
}

func checkSize(policy *v1alpha1.RateLimitPolicy) error {
	text, err := json.Marshal(policy.Spec)
	if err != nil {
		return invalid(field.NewPath("spec"), "can't be written as JSON: %w", err)
	}
	if len(text) > MaxSpecJSON {
		return tooLarge(fmt.Errorf("is %d bytes of JSON, more than %d: state fewer or shorter matches, or spread the limits over several policies", len(text), MaxSpecJSON))
	}
	return nil
}

func tooLarge(err error) error {
	return &Error{Reason: v1alpha1.ReasonTooLarge, Field: "spec", Err: err}
}

// check asks all that will read the record: the matcher's compiler, and the wire format with its bounds. Compile comes
// first, because it tells fields as users spell them.
func check(record *bucketconfig.Record) error {
	if _, err := ratelimit.Compile(record, nil); err != nil {
		return fromCompile(record, err)
	}
	if err := record.Validate(); err != nil {
		return invalid(field.NewPath("spec"), "%w", err)
	}
	// A valid record that can't be encoded is too large.
	if _, err := bucketconfig.Encode(record); err != nil {
		return tooLarge(err)
	}
	return nil
}

// fromCompile tells a compiler's complaint at the field of the policy that it is about.
func fromCompile(record *bucketconfig.Record, err error) error {
	var complaint *ratelimit.InvalidError
	if !errors.As(err, &complaint) {
		return invalid(field.NewPath("spec"), "%w", err)
	}
	path := field.NewPath("spec")
	for i := range record.Limits {
		if complaint.Limit != "" && record.Limits[i].Name == complaint.Limit {
			path = path.Child("limits").Index(i)
			break
		}
	}
	if complaint.Limit == "" {
		switch complaint.Field {
		case "name":
			return invalid(field.NewPath("metadata", "name"), "%w", complaint.Err)
		case "order":
			return invalid(field.NewPath("metadata", "creationTimestamp"), "%w", complaint.Err)
		}
	}
	return invalid(path.Child(complaint.Field), "%w", complaint.Err)
}
