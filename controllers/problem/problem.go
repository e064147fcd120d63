// Package problem is an error that knows which condition reason it is.
//
// All controllers import it, so that what one of them finds reaches the status of every policy it concerns. It must stay
// free of clients.
package problem

import (
	"errors"
	"fmt"

	portero "github.com/portero-dev/portero/api/v1alpha1"
)

// Problem is a reason and a sentence for people. It is an error.
type Problem struct {
	Reason  portero.ConditionReason
	Message string
	// Cause is the error behind it; may be nil.
	Cause error
}

// New makes a Problem; a %w in the format keeps the cause.
func New(reason portero.ConditionReason, format string, args ...any) *Problem {
	err := fmt.Errorf(format, args...)
	return &Problem{Reason: reason, Message: err.Error(), Cause: errors.Unwrap(err)}
}

// Error is the sentence.
func (p *Problem) Error() string { return p.Message }

// Unwrap is the cause.
func (p *Problem) Unwrap() error { return p.Cause }

// Of finds the Problem in an error, or makes one with the reason given. It is nil when err is.
func Of(err error, otherwise portero.ConditionReason) *Problem {
	if err == nil {
		return nil
	}
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	return &Problem{Reason: otherwise, Message: err.Error(), Cause: err}
}
