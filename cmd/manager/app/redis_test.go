package app_test

import (
	"context"
	"errors"
	"maps"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/keyspace"
)

// stored reads the generations of the policies that Redis holds for a namespace; nil when it holds nothing of it.
func stored(ctx context.Context, instance keyspace.Instance, namespace string) func() (map[string]int64, error) {
	return func() (map[string]int64, error) {
		snapshot, err := configstore.NewReader(redis.Client(), instance, namespace).Update(ctx, nil)
		if errors.Is(err, configstore.ErrLost) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		out := map[string]int64{}
		for name, policy := range snapshot.Policies {
			if policy.Err != nil {
				return nil, policy.Err
			}
			out[name] = policy.Record.Generation
		}
		return out, nil
	}
}

// share reads the share that Redis holds of a policy.
func share(ctx context.Context, instance keyspace.Instance, namespace, policy string) func() (int, error) {
	return func() (int, error) {
		snapshot, err := configstore.NewReader(redis.Client(), instance, namespace).Update(ctx, nil)
		if err != nil {
			return 0, err
		}
		return snapshot.Policies[policy].Share.Sidecars, nil
	}
}

func revision(ctx context.Context, instance keyspace.Instance, namespace string) string {
	GinkgoHelper()
	out, err := configstore.NewReader(redis.Client(), instance, namespace).Revision(ctx)
	Expect(err).NotTo(HaveOccurred())
	return out
}

// beat sends a heartbeat of the pod's sidecar that applies the policy at a generation.
func beat(ctx context.Context, instance keyspace.Instance, pod *corev1.Pod, policy *portero.RateLimitPolicy, generation int64,
	changes ...func(*bucketconfig.Heartbeat),
) {
	GinkgoHelper()
	heartbeat := &bucketconfig.Heartbeat{
		Schema: bucketconfig.SchemaVersion, PodName: pod.Name, StartID: "start-" + pod.Name, SidecarVersion: "test",
		Applied: []bucketconfig.AppliedPolicy{{Name: policy.Name, UID: string(policy.UID), Generation: generation}},
	}
	for _, change := range changes {
		change(heartbeat)
	}
	Eventually(func() error {
		_, err := configstore.NewHeartbeats(redis.Client(), instance, pod.Namespace).Send(ctx, string(pod.UID), heartbeat)
		return err
	}).WithTimeout(soon).Should(Succeed(), "a manager that just started loads the library first")
}

// onEveryNode sends a command to each node.
func onEveryNode(ctx context.Context, command ...any) {
	GinkgoHelper()
	for _, node := range redis.Nodes {
		Expect(node.Client().Do(ctx, command...).Err()).To(Succeed())
	}
}

// onEveryMaster sends a command to each master.
func onEveryMaster(ctx context.Context, command ...any) {
	GinkgoHelper()
	for _, node := range redis.Nodes {
		role, err := node.Client().Do(ctx, "ROLE").Slice()
		Expect(err).NotTo(HaveOccurred())
		if role[0] == "master" {
			Expect(node.Client().Do(ctx, command...).Err()).To(Succeed())
		}
	}
}

// users lists the instance's users that every node knows.
func users(ctx context.Context, instance keyspace.Instance) func() ([]string, error) {
	return func() ([]string, error) {
		count := map[string]int{}
		for _, node := range redis.Nodes {
			names, err := node.Client().Do(ctx, "ACL", "USERS").StringSlice()
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				count[name]++
			}
		}
		var out []string
		for _, name := range slices.Sorted(maps.Keys(count)) {
			if len(name) > len(instance.User("")) && name[:len(instance.User(""))] == instance.User("") && count[name] == len(redis.Nodes) {
				out = append(out, name)
			}
		}
		return out, nil
	}
}
