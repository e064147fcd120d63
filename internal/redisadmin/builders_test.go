package redisadmin_test

import (
	"log/slog"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/configstore"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func somePolicy() configstore.Policy {
	return configstore.Policy{
		Name: "a",
		Record: &bucketconfig.Record{
			Schema: bucketconfig.SchemaVersion, Kind: bucketconfig.Kind, Name: "a", UID: "uid", Generation: 1, Order: 1,
			Limits: []bucketconfig.Limit{{
				Name: "all", Cost: 1, Bucket: bucketconfig.Bucket{Capacity: 10, RefillTokens: 1, RefillIntervalUS: 1_000_000},
			}},
			Store:    bucketconfig.Store{TimeoutUS: 10_000, OnFailure: "Local"},
			Response: bucketconfig.Response{RateLimitHeaders: "Standard", StatusCode: 429},
		},
		Share: bucketconfig.Share{Sidecars: 1},
	}
}
