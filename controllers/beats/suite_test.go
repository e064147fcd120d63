package beats_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestBeats(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Heartbeats")
}
