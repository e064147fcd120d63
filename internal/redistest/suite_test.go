package redistest_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestRedistest(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Throw-away Redis Cluster")
}
