package podlabels_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestPodlabels(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "podlabels")
}
