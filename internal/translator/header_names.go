package translator

import (
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portero-dev/portero/api/v1alpha1"
)

// Names of fields that are meant for one connection alone (RFC 9110 section 7.6.1), as the sidecar treats them. A limit that
// asks for one would never find it, and nobody would be told.
var (
	// oneHop are taken out of requests before limits look, and out of responses before their costs are read.
	oneHop = []string{"Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection"}
	// oneHopOfResponses are taken out of responses too. In a request Connection, Te and Upgrade can be seen: they tell a
	// WebSocket's handshake or a gRPC call.
	oneHopOfResponses = []string{"Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}
	// taken are read by HTTP servers themselves, and stand in no request's header.
	taken = map[string]string{
		"Host":              "use hosts in matches, or a key part of type Host",
		"Trailer":           "use a header that the client or a proxy in front sends for this",
		"Transfer-Encoding": "use a header that the client or a proxy in front sends for this",
	}
)

// requestHeader gives the canonical name of a header that limits can see in requests.
func requestHeader(name v1alpha1.HeaderName, path *field.Path) (string, error) {
	canonical := http.CanonicalHeaderKey(string(name))
	if wayOut := taken[canonical]; wayOut != "" {
		return "", invalid(path, "%q: HTTP servers take it out of a request's header, so it would never be found: %s", name, wayOut)
	}
	if slices.Contains(oneHop, canonical) {
		return "", invalid(path, "%q: is meant for one connection alone and taken out before limits look, so it would never be found: "+
			"use a header of the request itself, such as Authorization or X-Api-Key", name)
	}
	return canonical, nil
}

// responseHeader gives the canonical name of a header or trailer that can be read in responses.
func responseHeader(name v1alpha1.HeaderName, path *field.Path) (string, error) {
	canonical := http.CanonicalHeaderKey(string(name))
	if slices.Contains(oneHop, canonical) || slices.Contains(oneHopOfResponses, canonical) {
		return "", invalid(path, "%q: is meant for one connection alone and taken out of responses, so it would never be found: "+
			"let the app tell the cost in a header or trailer of its own, such as X-Cost", name)
	}
	return canonical, nil
}
