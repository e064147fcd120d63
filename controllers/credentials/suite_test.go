package credentials_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/testenv"
)

func TestCredentials(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Credentials")
}

var api *testenv.Environment

var _ = BeforeSuite(func() { api = testenv.Start(GinkgoT(), testenv.Options{}) })
