##@ Development cluster

.PHONY: cluster-build
cluster-build: ## Build the pinned Kubernetes, containerd and CoreDNS into the cache (10 min cold on 2 cores, instant when there).
	hack/cluster/build all
