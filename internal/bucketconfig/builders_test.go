package bucketconfig_test

import "github.com/portero-dev/portero/internal/bucketconfig"

// validRecord states every field of a record at least once.
func validRecord() *bucketconfig.Record {
	return &bucketconfig.Record{
		Schema:     1,
		Kind:       "RateLimitPolicy",
		Name:       "checkout",
		UID:        "5f0c6e0a-8a3f-4b7e-9d55-3f1f6b1f0001",
		Generation: 7,
		Order:      1_790_000_000<<21 + 7,
		Selector: bucketconfig.Selector{
			MatchLabels:      map[string]string{"app": "checkout", "tier": "front"},
			MatchExpressions: []bucketconfig.SelectorRequirement{{Key: "track", Operator: "NotIn", Values: []string{"canary"}}},
		},
		Shadow: true,
		ClientIP: &bucketconfig.ClientIP{
			Type: "XForwardedFor", TrustedProxies: []string{"10.42.7.0/24"}, IPv4PrefixLength: 32, IPv6PrefixLength: 64,
		},
		Exempt: []bucketconfig.Match{{Path: &bucketconfig.StringMatch{Type: "Exact", Value: "/healthz"}}},
		Limits: []bucketconfig.Limit{{
			Name: "per-key",
			Matches: []bucketconfig.Match{{
				Methods: []string{"GET", "POST"},
				Path:    &bucketconfig.StringMatch{Type: "PathPrefix", Value: "/api"},
				Headers: []bucketconfig.NamedMatch{{
					Name: "X-Plan", Type: "RegularExpression", Value: "free|trial",
				}},
			}},
			KeyParts: []bucketconfig.KeyPart{
				{Type: "Header", Name: "X-Api-Key", WhenMissing: "Deny"},
				{Type: "ClientIP", WhenMissing: "Share"},
			},
			Bucket: bucketconfig.Bucket{Capacity: 100, RefillTokens: 10, RefillIntervalUS: 1_000_000},
			Cost:   2,
			Shadow: true,
		}},
		Store:    bucketconfig.Store{TimeoutUS: 10_000, OnFailure: "Local"},
		Response: bucketconfig.Response{RateLimitHeaders: "Standard", StatusCode: 429},
	}
}

// validHeartbeat states every field of a heartbeat at least once.
func validHeartbeat() *bucketconfig.Heartbeat {
	return &bucketconfig.Heartbeat{
		Schema:         1,
		PodName:        "checkout-7d4b9c-x2x7k",
		StartID:        "0123456789abcdef",
		SidecarVersion: "v0.1.0",
		Revision:       "1790000000000001",
		Applied: []bucketconfig.AppliedPolicy{{
			Name: "checkout", UID: "5f0c6e0a-8a3f-4b7e-9d55-3f1f6b1f0001", Generation: 7,
			Limits: []bucketconfig.LimitCounter{{Name: "per-key", Allowed: 5, Denied: 6, ShadowDenied: 7}},
		}},
		Refused:       []bucketconfig.RefusedPolicy{{Name: "other", Reason: "schema version 2 is unknown here"}},
		Fallback:      true,
		FallbackSince: 1_790_000_000_000_000,
	}
}
