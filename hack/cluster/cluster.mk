##@ Development cluster

.PHONY: up
up: ## Start a real Kubernetes, a Redis Cluster and Portero on this machine (root; first time 10 to 25 min, then half a minute).
	hack/cluster/up

.PHONY: down
down: ## Take all of that away without a trace.
	hack/cluster/down

.PHONY: cluster-build
cluster-build: ## Build the pinned Kubernetes, containerd and CoreDNS into the cache (10 to 25 min cold on 2 cores, instant when there).
	hack/cluster/build all

.PHONY: cluster-images
cluster-images: ## Rebuild our images from the checkout, load them into the running cluster, restart the manager.
	hack/cluster/images --restart

.PHONY: cluster-check
cluster-check: ## Check that `make down` leaves nothing behind.
	hack/cluster/trace-check
