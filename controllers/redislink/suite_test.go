package redislink_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestRedisLink(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Redis link")
}
