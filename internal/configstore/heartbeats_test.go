package configstore_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/configstore"
)

func beat(startID string) *bucketconfig.Heartbeat {
	return &bucketconfig.Heartbeat{
		Schema: bucketconfig.SchemaVersion, PodName: "pod", StartID: startID, SidecarVersion: "test", Revision: "7",
		Applied: []bucketconfig.AppliedPolicy{{Name: "a", UID: "uid-of-a", Generation: 3}},
	}
}

// put stores a heartbeat as if it had come some time ago.
func put(ctx SpecContext, namespace, pod string, age time.Duration, payload string) {
	GinkgoHelper()
	value := fmt.Sprintf("%d %s", time.Now().Add(-age).UnixMicro(), payload)
	Expect(cluster.Client().HSet(ctx, instance.Heartbeats(namespace), pod, value).Err()).To(Succeed())
}

var _ = Describe("Heartbeats", func() {
	newHeartbeats := func(namespace string) *configstore.Heartbeats {
		return configstore.NewHeartbeats(newClient(), instance, namespace)
	}

	It("reach the manager with their age, by pod", func(ctx SpecContext) {
		namespace := newNamespace()
		beats := newHeartbeats(namespace)
		for _, pod := range []string{"pod-1", "pod-2"} {
			_, err := beats.Send(ctx, pod, beat("start of "+pod))
			Expect(err).NotTo(HaveOccurred())
		}
		read, err := beats.Read(ctx, []string{"pod-1", "pod-2", "silent"})
		Expect(err).NotTo(HaveOccurred())
		Expect(read).To(HaveLen(2))
		Expect(read["pod-1"].Err).NotTo(HaveOccurred())
		Expect(read["pod-1"].Heartbeat).To(Equal(beat("start of pod-1")))
		Expect(read["pod-2"].Heartbeat.StartID).To(Equal("start of pod-2"))
		Expect(read["pod-1"].Age).To(And(BeNumerically(">=", 0), BeNumerically("<", 5*time.Second)))
	})

	It("age while nothing comes, and the latest replaces the one before", func(ctx SpecContext) {
		namespace := newNamespace()
		beats := newHeartbeats(namespace)
		put(ctx, namespace, "pod", 40*time.Second, `{"schema":1,"startId":"s"}`)
		read, err := beats.Read(ctx, []string{"pod"})
		Expect(err).NotTo(HaveOccurred())
		Expect(read["pod"].Age).To(BeNumerically("~", 40*time.Second, 5*time.Second))
		_, err = beats.Send(ctx, "pod", beat("again"))
		Expect(err).NotTo(HaveOccurred())
		read, err = beats.Read(ctx, []string{"pod"})
		Expect(err).NotTo(HaveOccurred())
		Expect(read["pod"].Age).To(BeNumerically("<", 5*time.Second))
		Expect(read["pod"].Heartbeat.StartID).To(Equal("again"))
	})

	It("have no negative age on a node whose clock is behind", func(ctx SpecContext) {
		namespace := newNamespace()
		put(ctx, namespace, "pod", -time.Hour, `{"schema":1,"startId":"s"}`)
		read, err := newHeartbeats(namespace).Read(ctx, []string{"pod"})
		Expect(err).NotTo(HaveOccurred())
		Expect(read["pod"].Age).To(BeZero())
	})

	It("are read of more pods than one call takes", func(ctx SpecContext) {
		namespace := newNamespace()
		var pods []string
		for i := range 250 {
			pods = append(pods, fmt.Sprintf("pod-%d", i))
			put(ctx, namespace, pods[i], 0, fmt.Sprintf(`{"schema":1,"startId":"s-%d"}`, i))
		}
		read, err := newHeartbeats(namespace).Read(ctx, pods)
		Expect(err).NotTo(HaveOccurred())
		Expect(read).To(HaveLen(250))
		Expect(read["pod-249"].Heartbeat.StartID).To(Equal("s-249"))
	})

	It("expire when all sidecars of the namespace are gone, and each one puts that off", func(ctx SpecContext) {
		namespace := newNamespace()
		key := instance.Heartbeats(namespace)
		put(ctx, namespace, "pod", 0, "x")
		Expect(cluster.Client().TTL(ctx, key).Val()).To(BeEquivalentTo(-1), "no expiry yet")
		_, err := newHeartbeats(namespace).Send(ctx, "pod", beat("s"))
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.Client().TTL(ctx, key).Val()).To(BeNumerically("~", 15*time.Minute, 5*time.Second))
	})

	DescribeTable("that are none say so, and harm nobody else's",
		func(ctx SpecContext, value, message string) {
			namespace := newNamespace()
			beats := newHeartbeats(namespace)
			_, err := beats.Send(ctx, "good", beat("s"))
			Expect(err).NotTo(HaveOccurred())
			Expect(cluster.Client().HSet(ctx, instance.Heartbeats(namespace), "bad", value).Err()).To(Succeed())
			read, err := beats.Read(ctx, []string{"bad", "good"})
			Expect(err).NotTo(HaveOccurred())
			Expect(read["bad"].Err).To(MatchError(ContainSubstring(message)))
			Expect(read["bad"].Heartbeat).To(BeNil())
			Expect(read["good"].Heartbeat).NotTo(BeNil())
		},
		Entry("empty", "", "no time before the heartbeat"),
		Entry("without a time", `{"schema":1}`, "no time before the heartbeat"),
		Entry("from before all time", "-5 {}", "no time before the heartbeat"),
		Entry("not JSON", "1790000000000000 x", "decode heartbeat"),
		Entry("of a newer sidecar", `1790000000000000 {"schema":3}`, "schema version 3 is unknown"),
		Entry("incomplete", `1790000000000000 {"schema":1}`, "startId"),
	)

	It("that are too long count as missing", func(ctx SpecContext) {
		namespace := newNamespace()
		put(ctx, namespace, "bad", 0, strings.Repeat("x", 1<<20))
		read, err := newHeartbeats(namespace).Read(ctx, []string{"bad"})
		Expect(err).NotTo(HaveOccurred())
		Expect(read).To(BeEmpty())
	})

	It("are not sent out of bounds", func(ctx SpecContext) {
		namespace := newNamespace()
		_, err := newHeartbeats(namespace).Send(ctx, "pod", beat(""))
		Expect(err).To(MatchError(ContainSubstring("startId")))
		_, err = newHeartbeats(namespace).Send(ctx, strings.Repeat("u", 65), beat("s"))
		Expect(err).To(MatchError(ContainSubstring("malformed heartbeat")))
		Expect(cluster.Client().Exists(ctx, instance.Heartbeats(namespace)).Val()).To(BeZero())
	})

	It("bring back the revision", func(ctx SpecContext) {
		namespace := newNamespace()
		published := publish(ctx, newWriter(1), namespace, policy("a", 1))
		sent, err := newHeartbeats(namespace).Send(ctx, "pod", beat("s"))
		Expect(err).NotTo(HaveOccurred())
		Expect(sent).To(Equal(configstore.Sent{Revision: published.Revision}))
	})

	It("are sent also where no revision is stored, which they tell", func(ctx SpecContext) {
		namespace := newNamespace()
		beats := newHeartbeats(namespace)
		sent, err := beats.Send(ctx, "pod", beat("s"))
		Expect(err).NotTo(HaveOccurred())
		Expect(sent.RevisionErr).To(MatchError(configstore.ErrLost))
		Expect(beats.Read(ctx, []string{"pod"})).To(HaveLen(1))
	})

	It("bring back the revision also where the library is missing", func(ctx SpecContext) {
		namespace := newNamespace()
		published := publish(ctx, newWriter(1), namespace, policy("a", 1))
		master, err := cluster.MasterOf(ctx, instance.Config(namespace))
		Expect(err).NotTo(HaveOccurred())
		Expect(master.Client().FunctionFlush(ctx).Err()).To(Succeed())
		DeferCleanup(loadLibrary)
		beats := newHeartbeats(namespace)
		sent, err := beats.Send(ctx, "pod", beat("s"))
		Expect(err).To(MatchError(configstore.ErrNoLibrary))
		Expect(sent.Revision).To(Equal(published.Revision))
		_, err = beats.Read(ctx, []string{"pod"})
		Expect(err).To(MatchError(configstore.ErrNoLibrary))
	})

	It("are pruned of pods that are gone, never of those that live or came just now", func(ctx SpecContext) {
		namespace := newNamespace()
		beats := newHeartbeats(namespace)
		for _, pod := range []string{"gone", "living", "spoilt"} {
			put(ctx, namespace, pod, 2*time.Minute, "x")
		}
		put(ctx, namespace, "new", 2*time.Second, "x")
		Expect(cluster.Client().HSet(ctx, instance.Heartbeats(namespace), "spoilt", "x", "huge", strings.Repeat("x", 1<<20)).Err()).To(Succeed())
		Expect(beats.Prune(ctx, []string{"living", "unknown"})).To(Equal(3))
		Expect(cluster.Client().HKeys(ctx, instance.Heartbeats(namespace)).Val()).To(ConsistOf("living", "new"))
		Expect(beats.Prune(ctx, nil)).To(Equal(1))
	})

	It("recover from another type of key in their place", func(ctx SpecContext) {
		namespace := newNamespace()
		beats := newHeartbeats(namespace)
		Expect(cluster.Client().Set(ctx, instance.Heartbeats(namespace), "x", 0).Err()).To(Succeed())
		_, err := beats.Send(ctx, "pod", beat("s"))
		Expect(err).To(HaveOccurred())
		Expect(beats.Prune(ctx, nil)).To(BeZero())
		_, err = beats.Send(ctx, "pod", beat("s"))
		Expect(err).NotTo(HaveOccurred())
	})
})

var _ = Describe("Errors", func() {
	It("of a fence say who and by what", func() {
		err := fmt.Errorf("publish: %w", &configstore.FencedError{Fence: 1, Stored: 2})
		Expect(errors.Is(err, configstore.ErrFenced)).To(BeTrue())
		Expect(err).To(MatchError("publish: epoch 2 is stored, above the fence 1: a later leader has published"))
	})

	DescribeTable("of Redis have a cause",
		func(err, cause error) { Expect(configstore.Classify(err)).To(MatchError(cause)) },
		Entry("no password", redisError("NOAUTH Authentication required."), configstore.ErrDenied),
		Entry("wrong password", redisError("WRONGPASS invalid username-password pair"), configstore.ErrDenied),
		Entry("a right missing", redisError("NOPERM this user has no permissions"), configstore.ErrDenied),
		Entry("a right missing inside a function", redisError("ERR The user executing the script can't run this command"), configstore.ErrDenied),
		Entry("the library missing", redisError("ERR Function not found"), configstore.ErrNoLibrary),
		Entry("a cluster that is down", redisError("CLUSTERDOWN The cluster is down"), configstore.ErrUnreachable),
		Entry("a replica that took over not yet", redisError("READONLY You can't write against a read only replica."), configstore.ErrUnreachable),
		Entry("a node that starts", redisError("LOADING Redis is loading the dataset in memory"), configstore.ErrUnreachable),
	)

	It("of Redis that nobody expected stay as they are", func() {
		err := redisError("WRONGTYPE Operation against a key holding the wrong kind of value")
		Expect(configstore.Classify(err)).To(BeIdenticalTo(err))
	})
})

// redisError is an error as Redis answers it.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}
