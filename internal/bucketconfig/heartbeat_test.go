package bucketconfig_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

var _ = Describe("Heartbeats on the wire", func() {
	It("come back as they were", func() {
		data, err := bucketconfig.EncodeHeartbeat(validHeartbeat())
		Expect(err).NotTo(HaveOccurred())
		Expect(bucketconfig.DecodeHeartbeat(data)).To(Equal(validHeartbeat()))
	})

	DescribeTable("keep the spelling of every field, and tell which version their sidecar reads",
		func(version int) {
			heartbeat := validHeartbeat()
			heartbeat.Schema = version
			text, err := json.MarshalIndent(heartbeat, "", "  ")
			Expect(err).NotTo(HaveOccurred())
			want := golden(fmt.Sprintf("heartbeat-v%d.json", version), text)
			Expect(string(text)).To(Equal(string(want)))
			Expect(bucketconfig.DecodeHeartbeat(want)).To(Equal(heartbeat))
		},
		Entry("1", 1), Entry("2", 2),
	)

	It("lose their counters, not their policies, when they would be too long", func() {
		heartbeat := validHeartbeat()
		for i := range 200 {
			policy := heartbeat.Applied[0]
			policy.Name = fmt.Sprintf("policy-%d", i)
			policy.Limits = nil
			for j := range bucketconfig.MaxLimits {
				policy.Limits = append(policy.Limits, bucketconfig.LimitCounter{Name: fmt.Sprintf("limit-%d", j)})
			}
			heartbeat.Applied = append(heartbeat.Applied, policy)
		}
		data, err := bucketconfig.EncodeHeartbeat(heartbeat)
		Expect(err).NotTo(HaveOccurred())
		got, err := bucketconfig.DecodeHeartbeat(data)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Applied).To(HaveLen(201))
		Expect(got.Applied[200].Name).To(Equal("policy-199"))
		Expect(got.Applied[200].Limits).To(BeEmpty())
		Expect(heartbeat.Applied[200].Limits).To(HaveLen(bucketconfig.MaxLimits), "the caller's value stays as it was")
	})

	It("are refused with the version's number when the schema is unknown", func() {
		_, err := bucketconfig.DecodeHeartbeat([]byte(`{"schema":9}`))
		var version *bucketconfig.VersionError
		Expect(errors.As(err, &version)).To(BeTrue(), "%v", err)
		Expect(version.Version).To(Equal(9))
	})

	DescribeTable("are refused out of bounds, read and written alike",
		func(change func(*bucketconfig.Heartbeat), message string) {
			heartbeat := validHeartbeat()
			change(heartbeat)
			_, err := bucketconfig.EncodeHeartbeat(heartbeat)
			Expect(err).To(MatchError(ContainSubstring(message)))
			text, err := json.Marshal(heartbeat)
			Expect(err).NotTo(HaveOccurred())
			_, err = bucketconfig.DecodeHeartbeat(text)
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("no start id", func(h *bucketconfig.Heartbeat) { h.StartID = "" }, "startId: 0 bytes are outside 1..253"),
		Entry("a long pod name", func(h *bucketconfig.Heartbeat) { h.PodName = strings.Repeat("x", 254) }, "podName: 254 bytes"),
		Entry("a long version", func(h *bucketconfig.Heartbeat) { h.SidecarVersion = strings.Repeat("x", 254) }, "sidecarVersion: 254"),
		Entry("a long revision", func(h *bucketconfig.Heartbeat) { h.Revision = strings.Repeat("1", 33) }, "revision: 33 bytes"),
		Entry("an applied policy without a name", func(h *bucketconfig.Heartbeat) { h.Applied[0].Name = "" }, "applied[0]: name: 0 bytes"),
		Entry("an applied policy without a UID", func(h *bucketconfig.Heartbeat) { h.Applied[0].UID = "" }, "applied[0]: uid: 0 bytes"),
		Entry("a negative generation", func(h *bucketconfig.Heartbeat) { h.Applied[0].Generation = -1 }, "applied[0]: generation: -1 is below 0"),
		Entry("too many limits", func(h *bucketconfig.Heartbeat) {
			h.Applied[0].Limits = make([]bucketconfig.LimitCounter, 17)
		}, "applied[0]: limits: 17 are more than 16"),
		Entry("a limit without a name", func(h *bucketconfig.Heartbeat) { h.Applied[0].Limits[0].Name = "" }, "limits[0]: name: 0 bytes"),
		Entry("too many policies", func(h *bucketconfig.Heartbeat) {
			h.Applied = make([]bucketconfig.AppliedPolicy, 257)
		}, "applied: 257 are more than 256"),
		Entry("too many refused", func(h *bucketconfig.Heartbeat) {
			h.Refused = make([]bucketconfig.RefusedPolicy, 257)
		}, "refused: 257 are more than 256"),
		Entry("a long reason", func(h *bucketconfig.Heartbeat) { h.Refused[0].Reason = strings.Repeat("x", 513) }, "refused[0]: reason: 513"),
	)

	It("are refused when longer than allowed, before they are parsed", func() {
		_, err := bucketconfig.DecodeHeartbeat(make([]byte, bucketconfig.MaxHeartbeatSize+1))
		Expect(err).To(MatchError(ContainSubstring("65537 bytes exceed 65536")))
	})
})
