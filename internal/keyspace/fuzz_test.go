package keyspace_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/portero-dev/portero/internal/keyspace"
)

// FuzzTag holds that different parts give different tags, and that a tag can hold nothing that steers a key.
func FuzzTag(f *testing.F) {
	f.Add("a", "b", "ab", "")
	f.Add("", "a", "a", "")
	f.Add("a\x00", "b", "a", "\x00b")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		tagger := keyspace.NewTagger([]byte("0123456789abcdef0123456789abcdef"))
		lists := [][]string{{a, b}, {c, d}, {a + b}, {a, b, c}, {a, b + c}, {a + b, c}}
		tags := make([]string, len(lists))
		for i, parts := range lists {
			tags[i] = tagger.Tag(parts...)
			if len(tags[i]) != 22 || strings.ContainsAny(tags[i], "{}:*?[]\\ ") {
				t.Fatalf("tag %q of %q could steer a key or a pattern", tags[i], parts)
			}
			for j := range i {
				if (tags[i] == tags[j]) != slices.Equal(lists[i], lists[j]) {
					t.Fatalf("%q and %q have tags %q and %q", lists[i], lists[j], tags[i], tags[j])
				}
			}
		}
	})
}
