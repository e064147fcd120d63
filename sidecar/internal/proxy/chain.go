package proxy

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/answer"
)

// handler is one link of the chain.
type handler func(w *response, r *http.Request)

// handler composes what happens to a request, outermost first:
//
//   - enter wraps request and response, and looks after the connection when the answer came before the body's end;
//   - wellFormed answers 400 to targets that apps read in another way than limits do;
//   - clean takes out what is meant for this hop alone, so that limits see what the app will see, and no upgrade can open
//     a way around them;
//   - govern describes the request, takes the verdict, and answers when it is refused;
//   - forward hands it to the app.
//
// Probes don't come here: the redirect leads them straight to the app.
func (p *Proxy) handler(port Port, forward *forwarder) http.Handler {
	return p.enter(wellFormed(clean(p.govern(port, forward.serve))))
}

func (p *Proxy) enter(next handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := &response{ResponseWriter: rw, proxy: p, peer: peerOf(r)}
		defer w.leave()
		if r.ContentLength == 0 || r.Body == nil {
			next(w, r)
			return
		}
		body := &requestBody{ReadCloser: r.Body}
		w.body = body
		if w.duplex = r.ProtoMajor == 1; w.duplex {
			// Answers may come while the body is on its way, without reading it first.
			_ = http.NewResponseController(rw).EnableFullDuplex() // supported by every HTTP/1 server connection
			w.small = r.ContentLength > 0 && r.ContentLength <= maxSmallBody
			w.expects = r.Header.Get("Expect") != ""
		}
		copied := *r
		copied.Body = body
		next(w, &copied)
		switch {
		case w.tunnel:
		case w.duplex:
			w.settle(r)
		default:
			w.outlast(r)
		}
	})
}

// peerOf is the address of the TCP peer, IPv4-mapped folded; the zero Addr when there is none.
func peerOf(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return peer.Addr().Unmap().WithZone("")
}

// wellFormed refuses targets that RFC 9112 section 3.2 does not admit and net/http does, as apps read them in other ways than
// limits do. A fragment is a part of the path to net/http, and many apps cut it off, so that /api#x would be /api to the app and
// no /api to its limits. A target such as x:api has no path at all, and the app would be sent api.
func wellFormed(next handler) handler {
	return func(w *response, r *http.Request) {
		if strings.Contains(r.RequestURI, "#") {
			http.Error(w, "portero: the request's target must not hold a fragment (#)", http.StatusBadRequest)
			return
		}
		if !hasForm(r) {
			http.Error(w, "portero: the request's target must be a path that starts with /, an http:// address, or *", http.StatusBadRequest)
			return
		}
		next(w, r)
	}
}

// hasForm says whether the target has one of the four forms of RFC 9112 section 3.2.
func hasForm(r *http.Request) bool {
	switch {
	case r.Method == http.MethodConnect:
		return true // an authority; govern answers it
	case strings.HasPrefix(r.RequestURI, "/"), r.RequestURI == "*":
		return true
	}
	return r.URL.Opaque == "" && r.URL.Host != "" && (r.URL.Scheme == "http" || r.URL.Scheme == "https")
}

// clean removes what is meant for this hop alone, what Connection nominates included, and offers to switch to another
// version of HTTP: behind such a switch further requests would pass unseen.
func clean(next handler) handler {
	return func(w *response, r *http.Request) {
		for _, line := range r.Header["Connection"] {
			for name := range strings.SplitSeq(line, ",") {
				switch name = http.CanonicalHeaderKey(strings.TrimSpace(name)); name {
				case "Upgrade", "Te", "Connection":
				default:
					r.Header.Del(name)
				}
			}
		}
		for _, name := range ratelimit.OneHop {
			delete(r.Header, name)
		}
		if offers, ok := r.Header["Upgrade"]; ok {
			if kept := withoutHTTP(offers); kept == "" {
				r.Header.Del("Upgrade")
			} else {
				r.Header["Upgrade"] = []string{kept}
			}
		}
		next(w, r)
	}
}

// withoutHTTP joins the protocols that don't carry HTTP requests of their own, and that can be written at all.
func withoutHTTP(offers []string) string {
	var kept []string
	for _, line := range offers {
		for offer := range strings.SplitSeq(line, ",") {
			offer = strings.TrimSpace(offer)
			protocol, _, _ := strings.Cut(strings.ToLower(offer), "/")
			switch protocol {
			case "", "h2c", "h2", "h3", "http", "tls":
			default:
				if !strings.ContainsFunc(offer, func(r rune) bool { return r < ' ' || r > '~' }) {
					kept = append(kept, offer)
				}
			}
		}
	}
	return strings.Join(kept, ", ")
}

func (p *Proxy) govern(port Port, next handler) handler {
	return func(w *response, r *http.Request) {
		if r.Method == http.MethodConnect {
			http.Error(w, "portero: CONNECT is not supported", http.StatusNotImplemented)
			return
		}
		policies := p.policies()
		policies.JoinRepeated(r.Header)
		description := policies.Describe(&ratelimit.Request{
			Method: r.Method, Path: rawPath(r), Query: r.URL.RawQuery, Host: r.Host, Header: r.Header, Peer: w.peer,
			Port: port.Number, PortName: port.Name, Workload: p.workload,
		})
		if len(description.Failures) > 0 {
			p.observer.CountFailures(description.Failures)
		}
		verdict := ratelimit.Verdict{}
		switch {
		case description.Deny != nil:
			verdict = deny(description.Deny)
		case len(description.Groups) > 0:
			verdict = p.limiter.Decide(r.Context(), description.Groups)
		case len(description.ShadowDenials) == 0:
			next(w, r)
			return
		}
		for _, denial := range description.ShadowDenials {
			verdict.Limits = append(verdict.Limits, ratelimit.LimitResult{Limit: denial.Limit, Shadow: true, Remaining: unknown})
		}
		p.observer.Count(&verdict)
		w.verdict = &verdict
		if verdict.Outcome == ratelimit.Allowed {
			if w.later = p.laterOf(description.Groups, &verdict); w.later != nil {
				defer w.tellTrailers()
			}
			next(w, r)
			return
		}
		var missing *bucketconfig.KeyPart
		if description.Deny != nil {
			missing = description.Deny.KeyPart
		}
		answer.Refuse(w, r, &verdict, missing)
	}
}

// unknown is the level of a bucket that was never asked.
const unknown = -1

func deny(denial *ratelimit.Denial) ratelimit.Verdict {
	return ratelimit.Verdict{
		Outcome: ratelimit.Denied,
		By:      denial.Limit,
		Limits:  []ratelimit.LimitResult{{Limit: denial.Limit, Remaining: unknown}},
	}
}

// rawPath is the path as the client sent it, without the query.
func rawPath(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		path, _, _ := strings.Cut(r.RequestURI, "?")
		return path
	}
	return r.URL.EscapedPath() // of the absolute form, or *
}
