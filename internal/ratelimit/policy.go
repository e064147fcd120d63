package ratelimit

import "github.com/portero-dev/portero/internal/bucketconfig"

// Policy is a compiled record. It is immutable and safe for concurrent use.
type Policy struct {
	Record *bucketconfig.Record
	Limits []*Limit
}
