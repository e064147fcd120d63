package tokenbucket_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/tokenbucket"
)

var _ = Describe("The library's revision", func() {
	const revision = tokenbucket.Revision
	ours := tokenbucket.Library()
	body := func() string { return strings.SplitN(ours.Code, "\n", 3)[2] }
	with := func(revision int, body string) string { return tokenbucket.WithHeader(ours.Name, revision, body) }

	It("is raised with every change of the Lua", func() {
		Expect(fmt.Sprint(revision, " ", ours.Digest)).To(Equal("4 7a65fc0427e945e6c3ee9206f46039f8fb27d3c22c3a73645c98398cea6101b8"),
			"the Lua has changed: raise Revision, and record both here")
	})

	It("decides which of two libraries stays", func() {
		Expect(ours.Code).To(Equal(with(revision, body())))
		Expect(ours.Supersedes(ours.Code)).To(BeFalse())
		Expect(ours.Supersedes(with(revision-1, "-- earlier"))).To(BeTrue())
		Expect(ours.Supersedes(with(revision+1, "-- later"))).To(BeFalse())
		Expect(ours.Supersedes(with(revision+1, "-- later") + "-- by hand")).To(BeTrue())
		Expect(ours.Supersedes(ours.Code + "-- by hand")).To(BeTrue())
		Expect(ours.Supersedes("#!lua name=" + keyspace.FunctionLibrary + "\n" + body())).To(BeTrue())
		Expect(ours.Supersedes("")).To(BeTrue())
	})

	It("lets one of two texts of the same revision win, whoever looks first", func() {
		for i := range 10 {
			other := fmt.Sprintf("-- text %d", i)
			theirs := tokenbucket.SourceOf(other)
			Expect(ours.Supersedes(with(revision, other))).NotTo(Equal(theirs.Supersedes(ours.Code)))
		}
	})
})
