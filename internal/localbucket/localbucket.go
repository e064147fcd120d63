// Package localbucket is the token bucket in this process, with exactly the arithmetic of the Lua one in Redis: whole
// tokens, a remainder over the interval, microseconds. It serves the fallback, computes waits for both, and is the model
// that the Lua is tested against.
//
// It is a leaf: standard library only.
package localbucket

// Params is the shape of a bucket.
type Params struct {
	Capacity     int64 // tokens, 1..1e9
	RefillTokens int64 // tokens per interval, 1..1e9
	IntervalUS   int64 // microseconds, 1 ms..366 days
}

// Level is how full a bucket is at a time.
type Level struct {
	Tokens    int64 // whole tokens; negative while in debt
	Remainder int64 // 0 <= Remainder < IntervalUS: the part of a token, in units of 1/IntervalUS
	UpdatedUS int64 // unix time in microseconds
}
