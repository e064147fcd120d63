package bucketconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

const (
	// SchemaVersion is the version that this build writes, and the newest that it reads.
	SchemaVersion = 2
	// OldestSchemaVersion is the oldest version that this build reads. Sidecars lag behind the manager by months.
	OldestSchemaVersion = 1
)

// VersionError tells of a schema version that this build does not read. It is no damage: a newer release wrote it.
type VersionError struct {
	Version int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("schema version %d is unknown here, this build reads %d to %d: upgrade the sidecar", e.Version, OldestSchemaVersion, SchemaVersion)
}

func knownVersion(version int) error {
	if version < OldestSchemaVersion || version > SchemaVersion {
		return &VersionError{Version: version}
	}
	return nil
}

// checkSchema looks at the version before anything else is understood: another version may mean another shape.
func checkSchema(text []byte) error {
	var head struct {
		Schema *int `json:"schema"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return err
	}
	if head.Schema == nil {
		return errors.New("schema: missing")
	}
	return knownVersion(*head.Schema)
}

// Schema1 is the record in schema version 1, for sidecars that read no later one; false when that version has no word for
// something that the record states. To leave that out would widen or narrow a limit without anybody's wish. The result
// shares all but its head with the record, which stays as it was.
func Schema1(record *Record) (*Record, bool) {
	if record.Response.RateLimitHeaders == "Both" || record.Response.ContentType != "" || record.Response.Body != "" ||
		!all(record.Exempt, (*Match).fitsSchema1) || !all(record.Limits, (*Limit).fitsSchema1) {
		return nil, false
	}
	older := *record
	older.Schema = 1
	return &older, true
}

func (m *Match) fitsSchema1() bool {
	return len(m.Hosts) == 0 && len(m.QueryParams) == 0 && len(m.Cookies) == 0 && len(m.Ports) == 0 && len(m.ClientCIDRs) == 0 &&
		m.GRPC == nil && m.When == "" && (m.Path == nil || m.Path.Type != "Template") &&
		all(m.Headers, func(h *NamedMatch) bool { return comparesValue(h.Type) && len(h.Values) == 0 })
}

func (l *Limit) fitsSchema1() bool {
	return len(l.CostRules) == 0 && l.CostSource == nil && len(l.Overrides) == 0 && all(l.Matches, (*Match).fitsSchema1) &&
		all(l.KeyParts, func(p *KeyPart) bool { return p.Type == "Header" || p.Type == "ClientIP" })
}

func all[T any](items []T, holds func(*T) bool) bool {
	return !slices.ContainsFunc(items, func(item T) bool { return !holds(&item) })
}
