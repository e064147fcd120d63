package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/translator"
)

// validator refuses policies that can't be translated: what the rules of the CRD can't tell, such as what an expression
// says, its author learns at once and not from a condition. It stands in nobody's way: a policy that is being deleted, or
// whose spec stays as it is, is always admitted.
type validator struct {
	// turns has room for those that are judged at the same time: expressions take time to compile, and whoever may apply policies must not take
	// all of it from the injection of pods.
	turns chan struct{}
}

const judgedAtOnce = 2

func newValidator() *validator { return &validator{turns: make(chan struct{}, judgedAtOnce)} }

// Handle refuses a policy only for what the translator has against it.
func (v *validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update || req.SubResource != "" ||
		req.Resource.Group != v1alpha1.GroupVersion.Group || req.Resource.Resource != "ratelimitpolicies" {
		return admission.Allowed("")
	}
	fault, err := v.inTurn(ctx, req)
	switch {
	case err != nil:
		log.FromContext(ctx).Error(err, "Policy was admitted without being looked at", "namespace", req.Namespace, "policy", req.Name)
		validations.WithLabelValues("error").Inc()
		return admission.Allowed("").WithWarnings("portero: the policy was not checked: " + err.Error())
	case fault != nil:
		validations.WithLabelValues("refused").Inc()
		return refusal(req.Name, fault)
	}
	validations.WithLabelValues("admitted").Inc()
	return admission.Allowed("")
}

// inTurn judges, and waits for that as long as the API server waits for an answer.
func (v *validator) inTurn(ctx context.Context, req admission.Request) (*translator.Error, error) {
	select {
	case v.turns <- struct{}{}:
		defer func() { <-v.turns }()
		return judge(req)
	case <-ctx.Done():
		return nil, fmt.Errorf("others are being checked: %w", ctx.Err())
	}
}

// judge gives what the translator has against a policy. A panic is an error: one odd policy costs no more than its check.
func judge(req admission.Request) (fault *translator.Error, err error) {
	defer func() {
		if r := recover(); r != nil {
			fault, err = nil, fmt.Errorf("translator panicked: %v", r)
		}
	}()
	policy := &v1alpha1.RateLimitPolicy{}
	if err := json.Unmarshal(req.Object.Raw, policy); err != nil {
		return nil, fmt.Errorf("decode policy: %w", err)
	}
	if !policy.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	if req.Operation == admissionv1.Update { // clients leave out empty lists that others wrote
		old := &v1alpha1.RateLimitPolicy{}
		if json.Unmarshal(req.OldObject.Raw, old) == nil && equality.Semantic.DeepEqual(old.Spec, policy.Spec) {
			return nil, nil
		}
	}
	_, translated := translator.Translate(complete(policy))
	errors.As(translated, &fault)
	return fault, nil
}

// complete fills in what an API server gives each object before it stores it.
func complete(policy *v1alpha1.RateLimitPolicy) *v1alpha1.RateLimitPolicy {
	if policy.Name == "" {
		policy.Name = "generated"
	}
	if policy.UID == "" {
		policy.UID = "none"
	}
	if policy.Generation == 0 {
		policy.Generation = 1
	}
	if policy.CreationTimestamp.IsZero() {
		policy.CreationTimestamp = metav1.Now()
	}
	return policy
}

// refusal tells the fault as the API server tells those that its own rules find.
func refusal(name string, fault *translator.Error) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusUnprocessableEntity,
		Reason:  metav1.StatusReasonInvalid,
		Message: fault.Error(),
		Details: &metav1.StatusDetails{
			Name: name, Group: v1alpha1.GroupVersion.Group, Kind: "RateLimitPolicy",
			Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: fault.Field, Message: fault.Err.Error()}},
		},
	}}}
}
