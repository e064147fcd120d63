package credentials

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/portero-dev/portero/internal/sidecarenv"
)

const (
	// RotatedAnnotation is when the Secret got its password, where another one went before it.
	RotatedAnnotation = "portero.dev/password-rotated"
	// previousKey holds the password before, for the manager: sidecars don't read it.
	previousKey = "previous-password"
	// overlap is how long both passwords are valid from then on. kubelet needs up to 90 s to bring a changed Secret to the pods.
	overlap = 10 * time.Minute
)

// rotation is what a namespace's Secret and user go through when the password that is wanted is not the one that sidecars have.
type rotation struct {
	// before is the password that sidecars may still have, empty when there is none.
	before string
	// rotates is true while the Secret has that one: the user must know the next password on every node before the Secret tells it.
	rotates bool
	// until is when it ends to be valid; zero while it rotates.
	until time.Time
}

// rotationOf reads from a Secret as it is, which may be nil, where its namespace stands on the way to a password.
func rotationOf(known *corev1.Secret, password string, now time.Time) rotation {
	if known == nil || !Ours(known) {
		return rotation{}
	}
	has := string(known.Data[sidecarenv.SecretPassword])
	if has != password {
		// What a hand wrote there is no password of ours, and would be let in for a while.
		return rotation{before: derived(has), rotates: derived(has) != ""}
	}
	since, err := time.Parse(time.RFC3339, known.Annotations[RotatedAnnotation])
	before := derived(string(known.Data[previousKey]))
	if until := since.Add(overlap); err == nil && before != "" && now.Before(until) && !since.After(now) {
		return rotation{before: before, until: until}
	}
	return rotation{}
}

// derived is the text if it has the form of a password that was derived, else nothing.
func derived(text string) string {
	if len(text) != passwordLength {
		return ""
	}
	return text
}

// passwords are those that the user is to have.
func (s rotation) passwords(next string) []string {
	if s.before == "" {
		return []string{next}
	}
	return []string{next, s.before}
}

// apply completes the Secret that is wanted.
func (s rotation) apply(want *corev1.Secret, known *corev1.Secret, now time.Time) {
	switch {
	case s.rotates:
		want.Annotations = map[string]string{RotatedAnnotation: now.UTC().Format(time.RFC3339)}
		want.Data[previousKey] = []byte(s.before)
	case s.before != "":
		want.Annotations = map[string]string{RotatedAnnotation: known.Annotations[RotatedAnnotation]}
		want.Data[previousKey] = []byte(s.before)
	}
}

// rotate makes the user ready for the wanted Secret and completes that. Where the user can't be made ready on every node the Secret keeps the
// password that sidecars have, so that none is locked out, and all else in it goes on.
func (r *Reconciler) rotate(ctx context.Context, want, known *corev1.Secret, unconfigured error) (rotation, error) {
	next, now := string(want.Data[sidecarenv.SecretPassword]), r.Now()
	state := rotationOf(known, next, now)
	err := unconfigured
	if state.rotates && err == nil {
		err = r.Users.Ensure(ctx, want.Namespace, state.passwords(next)...)
	}
	if state.rotates && err != nil {
		want.Data[sidecarenv.SecretPassword] = []byte(state.before)
		return rotation{}, err
	}
	state.apply(want, known, now)
	if state.rotates {
		state.until = now.Add(overlap)
	}
	return state, nil
}
