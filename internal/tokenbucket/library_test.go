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
		Expect(fmt.Sprint(revision, " ", ours.Digest)).To(Equal("3 4f88a3f9b27edb3e5499fdbd0c5eb5d0e68270344447340ff1cd97cd71b63d8f"),
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
