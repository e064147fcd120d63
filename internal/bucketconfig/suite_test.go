package bucketconfig_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestBucketconfig(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "bucketconfig")
}
