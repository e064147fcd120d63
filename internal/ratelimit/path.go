package ratelimit

import (
	"bytes"
	"strings"
)

// NormalizePath gives the form of a request's escaped path that matches compare, so that no other spelling that
// RFC 3986 section 6.2.2 calls equivalent evades a limit. The app still receives the bytes that the client sent. The form:
//
//   - every byte has one spelling: the characters that RFC 3986 allows in a path element stand for themselves, whether
//     they were percent-encoded or not, and all others are percent-encoded with upper-case digits. An encoded slash stays
//     %2F: it separates no elements;
//   - empty elements are dropped, then "." and ".." are resolved, at most up to the root;
//   - a slash at the end stays: /a and /a/ differ (PathPrefix takes both);
//   - the empty path is "/", and "*" (of OPTIONS) stays.
//
// Upper and lower case differ, and parameters after a semicolon are part of their element. It is idempotent.
func NormalizePath(path string) string {
	if path == "*" || isNormal(path) {
		return path
	}
	return resolveElements(respell(path))
}

// isNormal recognizes most paths that are normal already, without a copy.
func isNormal(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '/' {
			// An element that is empty or starts with a dot goes the long way.
			if i+1 < len(path) && (path[i+1] == '/' || path[i+1] == '.') {
				return false
			}
			continue
		}
		if !isElementChar(c) {
			return false
		}
	}
	return true
}

// isElementChar says whether c is a pchar of RFC 3986 that needs no escape.
func isElementChar(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("-._~!$&'()*+,;=:@", c) >= 0
}

// respell gives every byte of an escaped path its one spelling.
func respell(path string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(path) + 8)
	for i := 0; i < len(path); i++ {
		c, encoded := path[i], false
		if c == '%' && i+2 < len(path) && isHex(path[i+1]) && isHex(path[i+2]) {
			c, encoded = unhex(path[i+1])<<4|unhex(path[i+2]), true
			i += 2
		}
		if isElementChar(c) || c == '/' && !encoded {
			b.WriteByte(c)
			continue
		}
		// A percent sign that starts no escape is spelled %25 too, else what follows could become one.
		b.WriteByte('%')
		b.WriteByte(digits[c>>4])
		b.WriteByte(digits[c&15])
	}
	return b.String()
}

// resolveElements drops empty elements and resolves dot elements. The result starts with a slash.
func resolveElements(path string) string {
	out := make([]byte, 0, len(path)+1)
	last := "" // the last element read; a path that ends with an empty or dot element ends with a slash
	for rest, more := path, true; more; {
		last, rest, more = strings.Cut(rest, "/")
		switch last {
		case "", ".":
		case "..":
			out = out[:max(0, bytes.LastIndexByte(out, '/'))]
		default:
			out = append(append(out, '/'), last...)
		}
	}
	if last == "" || last == "." || last == ".." || len(out) == 0 {
		out = append(out, '/')
	}
	return string(out)
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}
