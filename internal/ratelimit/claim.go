package ratelimit

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
)

// maxClaims bounds the payload of a token, in characters of base64. A longer one counts as missing.
const maxClaims = 16 << 10

// claim is a claim of the request's bearer token: a string, number or boolean as it stands in the token; empty when there
// is none. Nobody has verified the token here. A name with dots is looked up as a whole first, then as a path into
// objects.
func (v *view) claim(name string) string {
	v.readClaims()
	claims := v.claims
	for {
		if found, ok := claims[name]; ok {
			return claimText(found)
		}
		object, rest, nested := strings.Cut(name, ".")
		if !nested {
			return ""
		}
		claims, _ = claims[object].(map[string]any)
		name = rest
	}
}

func (v *view) readClaims() {
	if !v.haveClaims {
		v.haveClaims = true
		v.claims = claimsOf(headerValue(v.req.Header, "Authorization"))
	}
}

func claimText(claim any) string {
	switch claim := claim.(type) {
	case string:
		return claim
	case json.Number:
		return claim.String()
	case bool:
		if claim {
			return "true"
		}
		return "false"
	}
	return ""
}

// claimsOf reads the claims of a bearer token that is a signed JWT in compact form; nil when it is none.
func claimsOf(authorization string) map[string]any {
	scheme, token, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil
	}
	_, rest, _ := strings.Cut(strings.TrimLeft(token, " "), ".")
	payload, signature, signed := strings.Cut(rest, ".")
	if !signed || len(payload) > maxClaims || strings.Contains(signature, ".") {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(payload, "="))
	if err != nil {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // an account's number may have more digits than a float
	var claims map[string]any
	if decoder.Decode(&claims) != nil {
		return nil
	}
	return claims
}
