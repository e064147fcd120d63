// Package configstore keeps a namespace's records in Redis: the Writer of the manager publishes them, the Reader of each
// sidecar follows them, and Heartbeats travel the other way.
//
// All fields of one namespace lie in one hash, written at one instant by one Redis Function under a fence, so a reader
// sees either all of a publication or nothing of it. Both planes import this package; it stays free of Kubernetes.
package configstore

import (
	"strconv"
	"strings"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

// Fields of the config hash. A policy's name is a DNS subdomain, so that none collides.
const (
	revisionField = "$revision"
	digestsField  = "$digests"
	sharePrefix   = "$share/"
)

// recordField is the field of a policy's record in a schema version.
func recordField(version int, policy string) string {
	return strconv.Itoa(version) + "/" + policy
}

// recordFields are the fields of a policy's record in all schema versions, the newest first.
func recordFields(policy string) []string {
	var fields []string
	for version := bucketconfig.SchemaVersion; version >= bucketconfig.OldestSchemaVersion; version-- {
		fields = append(fields, recordField(version, policy))
	}
	return fields
}

// parseRecordField is the inverse of recordField; false for fields that are none.
func parseRecordField(field string) (version int, policy string, ok bool) {
	number, policy, found := strings.Cut(field, "/")
	version, err := strconv.Atoi(number)
	return version, policy, found && err == nil && version > 0 && policy != ""
}
