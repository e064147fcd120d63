package localbucket_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestLocalbucket(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Local bucket")
}
