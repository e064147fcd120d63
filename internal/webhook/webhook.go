// Package webhook answers the API server's admission requests: for pods that ask for a sidecar, and for policies.
//
// It decides nothing: internal/injector and internal/translator do. Here requests become calls and results become answers.
// Whatever goes wrong, a pod is admitted and carries the reason, and a policy is admitted and its condition Accepted tells.
// cmd/manager registers it on every replica.
package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/injector"
)

// Names that config/webhook spells too. They never change: the caBundle is written to webhooks by name.
const (
	// ConfigurationName is the MutatingWebhookConfiguration.
	ConfigurationName = "portero-injector"
	// ValidatorName is the ValidatingWebhookConfiguration.
	ValidatorName = "portero-validator"
	// ServiceName is the Service in the system namespace that leads to the webhook port.
	ServiceName = "portero-webhook"
	// RedirectPath serves pods of namespaces that admit the redirect.
	RedirectPath = "/inject-redirect"
	// RestrictedPath serves pods of namespaces that enforce Pod Security baseline or restricted.
	RestrictedPath = "/inject-restricted"
	// ValidatePath serves policies.
	ValidatePath = "/validate-policy"
)

// Options are what Register needs to know.
type Options struct {
	// Injector says how pods are injected. RestrictedNamespace is set for each path here.
	Injector injector.Options
	// SystemNamespace is Portero's own, whose pods are never touched.
	SystemNamespace string
}

// Host is the name by which the API server calls the webhook Service: the one its certificate must carry.
func Host(systemNamespace string) string { return ServiceName + "." + systemNamespace + ".svc" }

// Register adds the paths to the server.
func Register(server webhook.Server, o Options) error {
	if err := o.Injector.Validate(); err != nil {
		return fmt.Errorf("injection: %w", err)
	}
	for path, restricted := range map[string]bool{RedirectPath: false, RestrictedPath: true} {
		h := &handler{options: o.Injector, systemNamespace: o.SystemNamespace}
		h.options.RestrictedNamespace = restricted
		server.Register(path, &admission.Webhook{Handler: h})
	}
	server.Register(ValidatePath, &admission.Webhook{Handler: newValidator()})
	return nil
}

type handler struct {
	options         injector.Options
	systemNamespace string
}

// Handle injects the pod of the request. It admits every pod.
func (h *handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	if !h.concerns(req) {
		return admission.Allowed("")
	}
	result, err := h.inject(req.Object)
	observe(result.Status, err)
	logger := log.FromContext(ctx).WithValues("namespace", req.Namespace, "pod", podName(req))
	if err != nil {
		logger.Error(err, "Pod was admitted without a sidecar")
		return h.admitWithReason(req.Object.Raw, err)
	}
	if !result.Status.Injected {
		logger.Info("Pod was admitted without a sidecar", "reason", result.Status.Reason, "message", result.Status.Message)
	} else {
		logger.V(1).Info("Pod was injected", "warnings", result.Status.Warnings)
	}
	return patched(result.Patch, warnings(result.Status))
}

// concerns repeats what the webhook configuration asks for, since that is the cluster's to edit. The namespace is the
// request's: the pod's own need not be filled in.
func (h *handler) concerns(req admission.Request) bool {
	return req.Operation == admissionv1.Create && req.SubResource == "" &&
		req.Resource.Group == corev1.GroupName && req.Resource.Resource == "pods" &&
		req.Namespace != h.systemNamespace && !strings.HasPrefix(req.Namespace, "kube-")
}

// inject turns a panic into an error, so that one odd pod costs no more than its own sidecar.
func (h *handler) inject(object runtime.RawExtension) (result injector.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			result, err = injector.Result{}, fmt.Errorf("injector panicked: %v", r)
		}
	}()
	return injector.Inject(object.Raw, h.options)
}

// admitWithReason writes the reason into the status annotation, as far as the object can be read at all.
func (h *handler) admitWithReason(raw []byte, cause error) admission.Response {
	status, err := json.Marshal(injector.Status{
		Version: h.options.Version, Reason: injector.ReasonInternalError, Message: cause.Error(),
	})
	told := []string{"portero: " + cause.Error()}
	var object struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err != nil || json.Unmarshal(raw, &object) != nil || object.Metadata.Annotations == nil {
		return admission.Allowed("").WithWarnings(told...)
	}
	return patched([]injector.Operation{{
		Op: "add", Path: "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.StatusAnnotation, "/", "~1"), Value: string(status),
	}}, told)
}

func patched(ops []injector.Operation, warnings []string) admission.Response {
	response := admission.Allowed("").WithWarnings(warnings...)
	if len(ops) == 0 {
		return response
	}
	patch, err := json.Marshal(ops)
	if err != nil {
		return response.WithWarnings("portero: encode patch: " + err.Error())
	}
	response.Patch, response.PatchType = patch, ptr.To(admissionv1.PatchTypeJSONPatch)
	return response
}

// warnings are what the person or controller that creates the pod is told at once.
func warnings(s injector.Status) []string {
	var told []string
	if s.Reason != "" && s.Reason != injector.ReasonNotRequested {
		told = append(told, "portero: no sidecar: "+s.Message)
	}
	for _, w := range s.Warnings {
		told = append(told, "portero: "+w)
	}
	return told
}

// podName names a pod also before the API server has chosen the end of its name.
func podName(req admission.Request) string {
	if req.Name != "" {
		return req.Name
	}
	var object struct {
		Metadata struct {
			Name         string `json:"name"`
			GenerateName string `json:"generateName"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(req.Object.Raw, &object); err != nil {
		return ""
	}
	if object.Metadata.Name != "" {
		return object.Metadata.Name
	}
	return object.Metadata.GenerateName + "*****"
}
