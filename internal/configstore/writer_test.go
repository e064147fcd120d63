package configstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/redisclient"
)

var _ = Describe("Fence", func() {
	born := time.Unix(1_790_000_000, 0)

	It("grows with the lease's transitions", func() {
		Expect(configstore.Fence(born, 1)).To(BeNumerically(">", configstore.Fence(born, 0)))
	})

	It("grows with the lease's re-creation, which counts transitions anew", func() {
		Expect(configstore.Fence(born.Add(time.Second), 0)).To(BeNumerically(">", configstore.Fence(born, 1<<21-1)))
	})

	It("stays within what Redis' Lua counts exactly, whatever the lease says", func() {
		Expect(configstore.Fence(time.Time{}, -5)).To(BeZero())
		year2100 := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
		Expect(configstore.Fence(year2100, 1<<31-1)).To(BeNumerically("<", int64(1)<<53-1))
	})
})

var _ = Describe("Publishing", func() {
	It("stores all policies of a namespace at one revision and lists the namespace", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		published := publish(ctx, writer, namespace, policy("a", 1), policy("b", 1))
		Expect(published.Changed).To(BeTrue())

		snapshot := read(ctx, newReader(namespace), nil)
		Expect(snapshot.Revision).To(Equal(published.Revision))
		Expect(snapshot.Policies).To(HaveLen(2))
		Expect(snapshot.Policies["a"].Record).To(Equal(policy("a", 1).Record))
		Expect(snapshot.Policies["a"].Share.Sidecars).To(Equal(2))
		Expect(writer.Namespaces(ctx)).To(ContainElement(namespace))
	})

	It("gives revisions in microseconds of Redis' clock that grow with each publication", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		before := time.Now().Add(-time.Second)
		last := int64(0)
		for generation := range int64(5) {
			revision, err := strconv.ParseInt(publish(ctx, writer, namespace, policy("a", generation+1)).Revision, 10, 64)
			Expect(err).NotTo(HaveOccurred())
			Expect(revision).To(BeNumerically(">", last))
			last = revision
		}
		Expect(time.UnixMicro(last)).To(BeTemporally("~", before, time.Minute))
	})

	It("writes nothing when nothing differs", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		first := publish(ctx, writer, namespace, policy("a", 1))
		again := publish(ctx, newWriter(1), namespace, policy("a", 1))
		Expect(again.Changed).To(BeFalse())
		Expect(again.Revision).To(Equal(first.Revision))
	})

	It("carries a new share without touching the record", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		reader := newReader(namespace)
		publish(ctx, writer, namespace, policy("a", 1))
		old := read(ctx, reader, nil)
		scaled := policy("a", 1)
		scaled.Share.Sidecars = 7
		Expect(publish(ctx, writer, namespace, scaled).Changed).To(BeTrue())
		next := read(ctx, reader, old)
		Expect(next.Policies["a"].Share.Sidecars).To(Equal(7))
		Expect(next.Policies["a"].Record).To(BeIdenticalTo(old.Policies["a"].Record))
	})

	It("deletes a policy that is no longer wanted, and the last one leaves a revision behind", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		reader := newReader(namespace)
		publish(ctx, writer, namespace, policy("a", 1), policy("b", 1))
		publish(ctx, writer, namespace, policy("b", 1))
		Expect(read(ctx, reader, nil).Policies).To(And(HaveLen(1), HaveKey("b")))
		published := publish(ctx, writer, namespace)
		snapshot := read(ctx, reader, nil)
		Expect(snapshot.Policies).To(BeEmpty())
		Expect(snapshot.Revision).To(Equal(published.Revision))
		Expect(publish(ctx, writer, namespace).Changed).To(BeFalse())
	})

	It("lets stay the last good record of a policy without one, and renews its share", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		reader := newReader(namespace)
		publish(ctx, writer, namespace, policy("a", 1), policy("b", 1))
		untranslatable := policy("a", 2)
		untranslatable.Record, untranslatable.Share.Sidecars = nil, 9
		publish(ctx, writer, namespace, untranslatable, policy("b", 2))
		snapshot := read(ctx, reader, nil)
		Expect(snapshot.Policies["a"].Record.Generation).To(BeEquivalentTo(1))
		Expect(snapshot.Policies["a"].Err).NotTo(HaveOccurred())
		Expect(snapshot.Policies["a"].Share.Sidecars).To(Equal(9))
		Expect(snapshot.Policies["b"].Record.Generation).To(BeEquivalentTo(2))
	})

	It("refuses one record that can't be encoded and publishes all others", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		publish(ctx, writer, namespace, policy("a", 1), policy("b", 1))
		bad, misnamed := policy("a", 2), policy("c", 1)
		bad.Record.Limits = nil
		misnamed.Record.Name = "d"
		published := publish(ctx, writer, namespace, bad, policy("b", 2), misnamed)
		Expect(published.Refused).To(HaveLen(2))
		Expect(published.Refused["a"]).To(MatchError(ContainSubstring("limits: count: 0 is outside 1..16")))
		Expect(published.Refused["c"]).To(MatchError(ContainSubstring(`named "d"`)))
		snapshot := read(ctx, newReader(namespace), nil)
		Expect(snapshot.Policies).To(HaveLen(2))
		Expect(snapshot.Policies["a"].Record.Generation).To(BeEquivalentTo(1))
		Expect(snapshot.Policies["b"].Record.Generation).To(BeEquivalentTo(2))
	})

	It("removes a namespace with all that is ours, and tells readers nothing about its policies", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		publish(ctx, writer, namespace, policy("a", 1))
		Expect(writer.Remove(ctx, namespace)).To(Succeed())
		Expect(writer.Namespaces(ctx)).NotTo(ContainElement(namespace))
		Expect(cluster.Client().Exists(ctx, instance.Config(namespace), instance.Heartbeats(namespace)).Val()).To(BeZero())
		_, err := newReader(namespace).Update(ctx, nil)
		Expect(err).To(MatchError(configstore.ErrLost))
		Expect(writer.Remove(ctx, namespace)).To(Succeed(), "again")
	})

	It("leaves another instance on the same Redis alone", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		other := configstore.NewWriter(newClient(), keyspace.Instance("other"), 1)
		publish(ctx, writer, namespace, policy("a", 1))
		publish(ctx, other, namespace, policy("a", 2))
		Expect(read(ctx, newReader(namespace), nil).Policies["a"].Record.Generation).To(BeEquivalentTo(1))
		Expect(other.Remove(ctx, namespace)).To(Succeed())
		Expect(read(ctx, newReader(namespace), nil).Policies).To(HaveKey("a"))
		Expect(writer.Namespaces(ctx)).To(ContainElement(namespace))
		Expect(other.Namespaces(ctx)).NotTo(ContainElement(namespace))
	})
})

var _ = Describe("The fence", func() {
	It("refuses a deposed leader and says by which epoch", func(ctx SpecContext) {
		namespace := newNamespace()
		publish(ctx, newWriter(5), namespace, policy("a", 1))
		_, err := newWriter(4).Publish(ctx, namespace, configstore.Publication{})
		Expect(err).To(MatchError(configstore.ErrFenced))
		var fenced *configstore.FencedError
		Expect(errors.As(err, &fenced)).To(BeTrue())
		Expect(*fenced).To(Equal(configstore.FencedError{Fence: 4, Stored: 5}))
		Expect(read(ctx, newReader(namespace), nil).Policies).To(HaveKey("a"))
	})

	It("rises with a new leader even when nothing else differs, and tells no sidecar", func(ctx SpecContext) {
		namespace := newNamespace()
		first := publish(ctx, newWriter(5), namespace, policy("a", 1))
		second := publish(ctx, newWriter(6), namespace, policy("a", 1))
		Expect(second.Changed).To(BeFalse())
		Expect(second.Revision).To(Equal(first.Revision))
		_, err := newWriter(5).Publish(ctx, namespace, configstore.Publication{})
		Expect(err).To(MatchError(configstore.ErrFenced))
	})

	It("can be superseded by who knows the stored epoch, and by nobody else", func(ctx SpecContext) {
		namespace := newNamespace()
		publish(ctx, newWriter(1<<40), namespace, policy("a", 1))
		_, err := newWriter(4).Publish(ctx, namespace, configstore.Publication{Supersedes: 1<<40 - 1})
		Expect(err).To(MatchError(configstore.ErrFenced))
		_, err = newWriter(4).Publish(ctx, namespace, configstore.Publication{Supersedes: 1 << 40})
		Expect(err).NotTo(HaveOccurred())
		Expect(read(ctx, newReader(namespace), nil).Policies).To(BeEmpty())
		Expect(publish(ctx, newWriter(5), namespace, policy("a", 1)).Changed).To(BeTrue())
	})

	It("lets the highest of many writers at once have the last word, and no reader sees a mixture", func(ctx SpecContext) {
		const leaders, rounds = 4, 15
		namespace := newNamespace()
		reader := newReader(namespace)
		var writers sync.WaitGroup
		for leader := range int64(leaders) {
			writer := newWriter(leader + 1)
			writers.Go(func() {
				defer GinkgoRecover()
				for round := range int64(rounds) {
					generation := (leader+1)*1000 + round
					_, err := writer.Publish(ctx, namespace, configstore.Publication{Policies: []configstore.Policy{
						policy("a", generation), policy("b", generation),
					}})
					if err != nil {
						Expect(err).To(MatchError(configstore.ErrFenced))
						Expect(leader).NotTo(BeEquivalentTo(leaders-1), "the last leader is never fenced")
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { writers.Wait(); close(done) }()
		var snapshot *configstore.Snapshot
		for finished := false; !finished; {
			select {
			case <-done:
				finished = true
			default:
			}
			next, err := reader.Update(ctx, snapshot)
			if errors.Is(err, configstore.ErrLost) && snapshot == nil {
				continue
			}
			Expect(err).NotTo(HaveOccurred())
			snapshot = next
			Expect(snapshot.Policies["a"].Err).NotTo(HaveOccurred())
			Expect(snapshot.Policies["a"].Record.Generation).To(Equal(snapshot.Policies["b"].Record.Generation))
		}
		Expect(read(ctx, reader, snapshot).Policies["a"].Record.Generation).To(BeEquivalentTo(leaders*1000 + rounds - 1))
	}, SpecTimeout(time.Minute))
})

var _ = Describe("Repair by publishing again", func() {
	// Each entry spoils what is stored under the config key, whose content afterwards must be as it was before.
	DescribeTable("restores what was",
		func(ctx SpecContext, spoil func(ctx context.Context, client redis.Cmdable, key string) error) {
			namespace, writer := newNamespace(), newWriter(7)
			reader := newReader(namespace)
			publish(ctx, writer, namespace, policy("a", 1), policy("b", 1))
			before := read(ctx, reader, nil)
			fields := cluster.Client().HGetAll(ctx, instance.Config(namespace)).Val()

			Expect(spoil(ctx, cluster.Client(), instance.Config(namespace))).To(Succeed())
			published := publish(ctx, writer, namespace, policy("a", 1), policy("b", 1))
			Expect(published.Changed).To(BeTrue())
			Expect(published.Revision).NotTo(Equal(before.Revision))

			repaired := cluster.Client().HGetAll(ctx, instance.Config(namespace)).Val()
			Expect(repaired).To(HaveKeyWithValue("$revision", published.Revision))
			delete(repaired, "$revision")
			delete(fields, "$revision")
			Expect(repaired["$digests"]).To(MatchJSON(fields["$digests"]))
			delete(repaired, "$digests")
			delete(fields, "$digests")
			Expect(repaired).To(Equal(fields))
			after := read(ctx, reader, before)
			Expect(after.Policies["a"].Err).NotTo(HaveOccurred())
			Expect(publish(ctx, writer, namespace, policy("a", 1), policy("b", 1)).Changed).To(BeFalse())
		},
		Entry("after the key's removal", func(ctx context.Context, client redis.Cmdable, key string) error {
			return client.Del(ctx, key).Err()
		}),
		Entry("after a record was changed by hand", func(ctx context.Context, client redis.Cmdable, key string) error {
			return client.HSet(ctx, key, "2/a", "changed").Err()
		}),
		Entry("after a record for older sidecars was changed by hand", func(ctx context.Context, client redis.Cmdable, key string) error {
			return client.HSet(ctx, key, "1/a", "changed").Err()
		}),
		Entry("after a record was removed", func(ctx context.Context, client redis.Cmdable, key string) error {
			return client.HDel(ctx, key, "2/a").Err()
		}),
		Entry("after a record for older sidecars was removed", func(ctx context.Context, client redis.Cmdable, key string) error {
			return client.HDel(ctx, key, "1/a").Err()
		}),
		Entry("after a share was changed", func(ctx context.Context, client redis.Cmdable, key string) error {
			return client.HSet(ctx, key, "$share/b", `{"sidecars":1000}`).Err()
		}),
		Entry("after a foreign field came", func(ctx context.Context, client redis.Cmdable, key string) error {
			return client.HSet(ctx, key, "1/stranger", "x", "other", "y").Err()
		}),
		Entry("after a foreign digest came", func(ctx context.Context, client redis.Cmdable, key string) error {
			digests := client.HGet(ctx, key, "$digests").Val()
			return client.HSet(ctx, key, "$digests", `{"1/x":"y",`+digests[1:]).Err()
		}),
		Entry("after the digests were spoilt", func(ctx context.Context, client redis.Cmdable, key string) error {
			return client.HSet(ctx, key, "$digests", "{[").Err()
		}),
		Entry("after the digests became a list", func(ctx context.Context, client redis.Cmdable, key string) error {
			return client.HSet(ctx, key, "$digests", `[1,{"a":[]}]`).Err()
		}),
		Entry("after the digests were removed", func(ctx context.Context, client redis.Cmdable, key string) error {
			return client.HDel(ctx, key, "$digests").Err()
		}),
		Entry("after the revision was removed", func(ctx context.Context, client redis.Cmdable, key string) error {
			return client.HDel(ctx, key, "$revision").Err()
		}),
		Entry("after the revision was spoilt", func(ctx context.Context, client redis.Cmdable, key string) error {
			return client.HSet(ctx, key, "$revision", "1e300").Err()
		}),
		Entry("after the epoch was spoilt along with something else", func(ctx context.Context, client redis.Cmdable, key string) error {
			return client.HSet(ctx, key, "$epoch", "never", "1/a", "").Err()
		}),
		Entry("after another type of key took the place", func(ctx context.Context, client redis.Cmdable, key string) error {
			return client.Set(ctx, key, "x", 0).Err()
		}),
	)

	It("restores spoilt digests of a namespace without policies", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		publish(ctx, writer, namespace)
		Expect(cluster.Client().HSet(ctx, instance.Config(namespace), "$digests", "{[").Err()).To(Succeed())
		Expect(publish(ctx, writer, namespace).Changed).To(BeTrue())
		Expect(read(ctx, newReader(namespace), nil).Policies).To(BeEmpty())
	})

	It("gives a new revision also where the clock is behind the stored one", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		publish(ctx, writer, namespace)
		ahead := time.Now().Add(time.Hour).UnixMicro()
		Expect(cluster.Client().HSet(ctx, instance.Config(namespace), "$revision", ahead).Err()).To(Succeed())
		Expect(publish(ctx, writer, namespace, policy("a", 1)).Revision).To(Equal(strconv.FormatInt(ahead+1, 10)))
	})

	It("brings everything back after FLUSHALL on every master", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		reader := newReader(namespace)
		publish(ctx, writer, namespace, policy("a", 3))
		before := read(ctx, reader, nil)
		flushAll(ctx)
		_, err := reader.Update(ctx, before)
		Expect(err).To(MatchError(configstore.ErrLost), "a reader must not take it for a deletion")
		publish(ctx, writer, namespace, policy("a", 3))
		after := read(ctx, reader, before)
		Expect(after.Revision).NotTo(Equal(before.Revision))
		Expect(after.Policies["a"].Record).To(BeIdenticalTo(before.Policies["a"].Record), "the record did not change")
		Expect(writer.Namespaces(ctx)).To(ContainElement(namespace))
	})

	It("never lets a kept record without a digest read as a deleted policy", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		reader := newReader(namespace)
		publish(ctx, writer, namespace, policy("a", 1))
		before := read(ctx, reader, nil)
		Expect(cluster.Client().HSet(ctx, instance.Config(namespace), "$digests", "{}").Err()).To(Succeed())
		kept := policy("a", 1)
		kept.Record = nil
		publish(ctx, writer, namespace, kept)
		after := read(ctx, reader, before)
		Expect(after.Policies["a"].Record).To(BeIdenticalTo(before.Policies["a"].Record))
		Expect(after.Policies["a"].Err).To(MatchError(ContainSubstring("digest")))
		Expect(publish(ctx, writer, namespace, kept).Changed).To(BeFalse(), "nothing better can be had")
	})
})

var _ = Describe("Older sidecars", func() {
	// stored reads a policy's record as a sidecar of that schema version finds it; nil when there is none.
	stored := func(ctx SpecContext, namespace string, version int, name string) *bucketconfig.Record {
		GinkgoHelper()
		data, err := cluster.Client().HGet(ctx, instance.Config(namespace), fmt.Sprintf("%d/%s", version, name)).Bytes()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		Expect(err).NotTo(HaveOccurred())
		record, err := bucketconfig.Decode(data)
		Expect(err).NotTo(HaveOccurred())
		return record
	}

	It("find each policy that their version can express, before they ever sent a heartbeat", func(ctx SpecContext) {
		namespace := newNamespace()
		publish(ctx, newWriter(1), namespace, policy("a", 1), richPolicy("b", 1))
		Expect(stored(ctx, namespace, 1, "a")).To(Equal(policy("a", 1).Record))
		Expect(stored(ctx, namespace, 2, "a")).To(Equal(policy("a", 1).Record))
		Expect(stored(ctx, namespace, 1, "b")).To(BeNil())
		Expect(stored(ctx, namespace, 2, "b")).To(Equal(richPolicy("b", 1).Record))
	})

	It("keep the last state that their version could express, until the policy is gone", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		publish(ctx, writer, namespace, policy("a", 1))
		publish(ctx, writer, namespace, richPolicy("a", 2))
		Expect(stored(ctx, namespace, 1, "a").Generation).To(BeEquivalentTo(1))
		Expect(stored(ctx, namespace, 2, "a").Generation).To(BeEquivalentTo(2))
		Expect(publish(ctx, writer, namespace, richPolicy("a", 2)).Changed).To(BeFalse())

		untranslatable := richPolicy("a", 3)
		untranslatable.Record = nil
		Expect(publish(ctx, writer, namespace, untranslatable).Changed).To(BeFalse())
		Expect(stored(ctx, namespace, 1, "a").Generation).To(BeEquivalentTo(1))
		Expect(stored(ctx, namespace, 2, "a").Generation).To(BeEquivalentTo(2))

		publish(ctx, writer, namespace, policy("a", 4))
		Expect(stored(ctx, namespace, 1, "a").Generation).To(BeEquivalentTo(4))
		publish(ctx, writer, namespace)
		Expect(cluster.Client().HKeys(ctx, instance.Config(namespace)).Val()).To(ConsistOf("$epoch", "$revision", "$digests"))
	})
})

var _ = Describe("A publication that can't be made", func() {
	It("says that the library is missing", func(ctx SpecContext) {
		namespace := newNamespace()
		master, err := cluster.MasterOf(ctx, instance.Config(namespace))
		Expect(err).NotTo(HaveOccurred())
		Expect(master.Client().FunctionFlush(ctx).Err()).To(Succeed())
		DeferCleanup(loadLibrary)
		_, err = newWriter(1).Publish(ctx, namespace, configstore.Publication{})
		Expect(err).To(MatchError(configstore.ErrNoLibrary))
		Expect(err).To(MatchError(ContainSubstring(namespace)))
	})

	It("says that Redis is unreachable", func(ctx SpecContext) {
		client := redisclient.NewAdmin(redisclient.Options{Addrs: []string{"127.0.0.1:1"}})
		DeferCleanup(client.Close)
		_, err := configstore.NewWriter(client, instance, 1).Publish(ctx, "shop", configstore.Publication{})
		Expect(err).To(MatchError(configstore.ErrUnreachable))
	})

	It("says that the password is wrong", func(ctx SpecContext) {
		client := redisclient.NewAdmin(redisclient.Options{
			Addrs: cluster.Addrs(), Credentials: redisclient.Static("nobody", "wrong"),
		})
		DeferCleanup(client.Close)
		_, err := configstore.NewWriter(client, instance, 1).Publish(ctx, "shop", configstore.Publication{})
		Expect(err).To(MatchError(configstore.ErrDenied))
	})
})
