// Package injector decides what the sidecar of an annotated pod looks like and changes the pod accordingly.
//
// It is pure: bytes of a pod and options in, bytes of a pod, a JSON patch and a status out. It reads nothing else, so
// that one pod always gives one answer, and applying it twice gives the same as once, whatever other webhooks did in
// between. internal/webhook calls it.
//
// The pod is changed as a JSON document and never written from Go types: a field that this build does not know yet
// would otherwise be lost, as happened to restartPolicy of native sidecars under injectors built before it existed.
//
// It imports k8s.io/api and stays free of controller-runtime, client-go and Redis.
package injector
