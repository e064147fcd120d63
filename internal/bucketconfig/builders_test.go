package bucketconfig_test

import "github.com/portero-dev/portero/internal/bucketconfig"

// simpleRecord states every field that schema version 1 knows at least once.
func simpleRecord() *bucketconfig.Record {
	return &bucketconfig.Record{
		Schema:     2,
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

// validRecord states every field of a record at least once.
func validRecord() *bucketconfig.Record {
	record := simpleRecord()
	record.Exempt = append(record.Exempt,
		bucketconfig.Match{ClientCIDRs: []string{"10.1.0.0/16"}, Ports: []string{"http", "8080"}},
		bucketconfig.Match{GRPC: &bucketconfig.GRPCMatch{Service: "shop.Cart", Method: "Add"}},
		bucketconfig.Match{When: "request.headers[?'x-plan'].orValue('') == 'internal'"},
	)
	record.Limits = append(record.Limits, bucketconfig.Limit{
		Name: "rich",
		Matches: []bucketconfig.Match{{
			Path:        &bucketconfig.StringMatch{Type: "Template", Value: "/users/{id}/orders"},
			Hosts:       []string{"shop.example.com", "*.example.org"},
			Headers:     []bucketconfig.NamedMatch{{Name: "X-Plan", Type: "In", Values: []string{"free", "trial"}}, {Name: "X-Test", Type: "Absent"}},
			QueryParams: []bucketconfig.NamedMatch{{Name: "debug", Type: "Present"}, {Name: "q", Type: "Prefix", Value: "a"}},
			Cookies: []bucketconfig.NamedMatch{{
				Name: "session", Type: "InSHA256", Values: []string{"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
			}},
		}},
		KeyParts: []bucketconfig.KeyPart{
			{Type: "Method", WhenMissing: "Share"}, {Type: "Host", WhenMissing: "Share"}, {Type: "PathTemplate", WhenMissing: "Share"},
			{Type: "PathVariable", Name: "id", WhenMissing: "Share"}, {Type: "Query", Name: "q", WhenMissing: "Skip"},
			{Type: "Cookie", Name: "session", WhenMissing: "Deny"}, {Type: "Claim", Name: "sub", WhenMissing: "Share"},
			{Type: "Workload", WhenMissing: "Share"},
		},
		Bucket: bucketconfig.Bucket{Capacity: 100, RefillTokens: 1, RefillIntervalUS: 1_000},
		Cost:   1,
		CostRules: []bucketconfig.CostRule{{
			Matches: []bucketconfig.Match{{Methods: []string{"POST"}}}, Tokens: 10,
		}},
		Overrides: []bucketconfig.Override{
			{Name: "stolen", Type: "Deny", Matches: []bucketconfig.Match{{Headers: []bucketconfig.NamedMatch{{Name: "X-Api-Key", Type: "Exact", Value: "k"}}}}},
			{Name: "inside", Type: "Unlimited", Matches: []bucketconfig.Match{{ClientCIDRs: []string{"10.1.0.0/16"}}}},
			{Name: "rest", Type: "Bucket", Bucket: &bucketconfig.Bucket{Capacity: 50, RefillTokens: 1, RefillIntervalUS: 1_000}},
		},
	}, bucketconfig.Limit{
		Name: "bytes", KeyParts: []bucketconfig.KeyPart{{Type: "Expression", Name: "request.path.split('/')[1]", WhenMissing: "Skip"}}, Bucket: bucketconfig.Bucket{Capacity: 1_000_000, RefillTokens: 1, RefillIntervalUS: 1_000}, Cost: 100,
		CostSource: &bucketconfig.CostSource{Type: "RequestHeader", Header: "X-Cost", Maximum: 1_000},
	}, bucketconfig.Limit{
		Name: "work", Bucket: bucketconfig.Bucket{Capacity: 1_000, RefillTokens: 1, RefillIntervalUS: 1_000}, Cost: 1,
		CostSource: &bucketconfig.CostSource{Type: "ResponseHeader", Header: "X-Cost", Maximum: 500},
	})
	record.Response = bucketconfig.Response{
		RateLimitHeaders: "Both", StatusCode: 503, ContentType: "text/plain; charset=utf-8", Body: "{policy}/{limit}: wait {retryAfter} s",
	}
	return record
}

// validHeartbeat states every field of a heartbeat at least once.
func validHeartbeat() *bucketconfig.Heartbeat {
	return &bucketconfig.Heartbeat{
		Schema:         2,
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
