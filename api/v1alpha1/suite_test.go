package v1alpha1_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/testenv"
)

var server *testenv.Environment

func TestV1alpha1(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "API v1alpha1")
}

var _ = BeforeSuite(func() {
	server = testenv.Start(GinkgoT(), testenv.Options{})
})
