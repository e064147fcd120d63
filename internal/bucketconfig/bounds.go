package bucketconfig

// Bounds of a record. What the API admits lies within them; they exist so that a record altered by hand can't exhaust or
// crash a sidecar. Lengths of strings are in bytes: four per character that the API counts.
const (
	// MaxRecordSize bounds an encoded record, MaxRecordJSON the JSON inside it.
	MaxRecordSize = 64 << 10
	MaxRecordJSON = 512 << 10

	MaxLimits         = 16
	MaxMatches        = 16  // of a limit, and of the exempt requests
	MaxMethods        = 16  // of a match
	MaxHeaders        = 8   // of a match
	MaxNames          = 64  // hosts, ports and CIDRs of a match
	MaxValues         = 256 // of a match by In or InSHA256
	MaxOverrides      = 64
	MaxCostRules      = 16
	MaxBody           = 4096
	MaxKeyParts       = 8
	MaxTrustedProxies = 64
	MaxSelectorLabels = 64 // labels, requirements, and values of one requirement
	MaxString         = 1024
	MaxName           = 253 // of an object; a limit's name is shorter

	MaxCapacity       = 1_000_000_000 // also of refill tokens
	MinIntervalUS     = 1_000
	MaxIntervalUS     = 366 * 24 * 3600 * 1_000_000
	MinTimeoutUS      = 1_000
	MaxTimeoutUS      = 1_000_000
	MaxOrder          = 1<<53 - 1 // what a double holds exactly; Redis' Lua knows no other number
	MaxSidecars       = 1_000_000
	MaxExpressions    = 64      // different expressions of CEL of a record
	MaxExpressionCost = 200_000 // of all of them together, in CEL's units, for one request
	MaxRegexProgram   = 50_000  // instructions of all regular expressions of a record together, 40 bytes each

	// MaxHeartbeatSize bounds an encoded heartbeat.
	MaxHeartbeatSize   = 64 << 10
	MaxHeartbeatPolicy = 256 // policies applied, and policies refused
	MaxReason          = 512
)
