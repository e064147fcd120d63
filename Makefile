# Portero. `make help` lists the targets; each has a line that says what it does.
SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
IMG ?= portero.dev/manager:dev
SIDECAR_IMG ?= portero.dev/sidecar:dev
KUBECTL ?= kubectl

# Tools run from their own module, so that their versions are pinned and their dependencies stay out of ours.
TOOL := go tool -modfile=hack/tools/go.mod
LDFLAGS := -s -w -X github.com/portero-dev/portero/internal/version.Version=$(VERSION)
GINKGO_FLAGS ?= --randomize-all --randomize-suites --keep-going --fail-on-pending --timeout=20m
FUZZ_INPUTS ?= 10000
export GOFLAGS ?= -buildvcs=false

# The folder of etcd, kube-apiserver and kubectl that the API-server tests run on; set it to use others.
KUBEBUILDER_ASSETS ?= $(shell hack/cluster/build --print-dir)
KUBECTL_BIN = $(KUBEBUILDER_ASSETS)/kubectl

-include hack/cluster/cluster.mk

##@ General

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "; printf "Usage: make \033[36m<target>\033[0m [VAR=value]\n"} \
		/^##@ / {printf "\n\033[1m%s\033[0m\n", substr($$0, 5)} \
		/^[a-zA-Z0-9_-]+:.*## / {printf "  \033[36m%-16s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Build

.PHONY: build
build: ## Build the manager and the sidecar into bin/, static and stripped.
	CGO_ENABLED=0 go build -ldflags "$(LDFLAGS)" -o bin/ ./cmd/manager ./cmd/sidecar

.PHONY: generate
generate: ## Write generated code, manifests and the API reference: deepcopy, CRD, RBAC, PrometheusRule, api/v1alpha1/README.md.
	$(TOOL) controller-gen object paths=./api/...
	$(TOOL) controller-gen crd paths=./api/... output:crd:dir=config/crd/bases
	$(TOOL) controller-gen rbac:roleName=portero-manager paths="{./controllers/...,./internal/...,./cmd/...}" output:rbac:dir=config/rbac
	$(TOOL) crd-ref-docs --log-level=ERROR --source-path=api/v1alpha1 --config=hack/apireference/config.yaml \
		--templates-dir=hack/apireference/templates --renderer=markdown --output-path=api/v1alpha1/README.md
	hack/prometheusrule >config/prometheus/prometheusrule.yaml

.PHONY: fmt
fmt: ## Format all Go code and tidy all modules.
	$(TOOL) golangci-lint fmt ./...
	go mod tidy

##@ Check

.PHONY: verify
verify: generate tidy-check vet lint manifests alerts vuln clean-tree ## Generate, check everything that reads only, and fail if the tree is dirty after.

.PHONY: tidy-check
tidy-check: ## Check that go.mod and go.sum are tidy.
	go mod tidy -diff

.PHONY: vet
vet: ## Run go vet, also on the end-to-end tests.
	go vet ./...
	go vet -tags e2e ./hack/...

.PHONY: lint
lint: ## Run golangci-lint and shellcheck.
	$(TOOL) golangci-lint run ./...
	hack/shellcheck

.PHONY: manifests
manifests: kubectl-bin ## Render every kustomization, so that none is broken.
	hack/manifests "$(KUBECTL_BIN)"

.PHONY: alerts
alerts: ## Check the alert rules and run their unit tests.
	hack/promtool check rules config/prometheus/alerts.yaml
	hack/promtool test rules config/prometheus/tests/*.yaml

.PHONY: vuln
vuln: ## Check dependencies for known vulnerabilities, where the database can be reached.
	hack/govulncheck

.PHONY: clean-tree
clean-tree: ## Fail if generated files differ from what is committed.
	@changes=$$(git status --porcelain); if [ -n "$$changes" ]; then \
		echo "the tree is dirty; run 'make generate fmt' and commit:"; echo "$$changes"; git --no-pager diff | head -100; exit 1; fi

##@ Test

.PHONY: envtest-bin kubectl-bin
envtest-bin kubectl-bin:
	@test -x "$(KUBECTL_BIN)" || hack/cluster/build envtest

.PHONY: redis-server curl
redis-server curl:
	@command -v $@ >/dev/null || hack/cluster/packages $@

.PHONY: test
test: envtest-bin redis-server curl ## Unit, API-server and Redis Cluster tests with the race detector, in random order, then each fuzz target on FUZZ_INPUTS inputs.
	KUBEBUILDER_ASSETS="$(KUBEBUILDER_ASSETS)" $(TOOL) ginkgo run -r --race $(GINKGO_FLAGS) --skip-package=hack/e2e ./
	hack/fuzz $(FUZZ_INPUTS)

.PHONY: deflake
deflake: envtest-bin redis-server curl ## Repeat the tests until one fails.
	KUBEBUILDER_ASSETS="$(KUBEBUILDER_ASSETS)" $(TOOL) ginkgo run -r --race $(GINKGO_FLAGS) --until-it-fails --skip-package=hack/e2e ./

.PHONY: bench
bench: redis-server ## Compare what verdicts cost by the shape of their limits, on a Redis Cluster of their own, and print a table.
	go run ./hack/bench

.PHONY: e2e
e2e: up ## End-to-end tests on a real cluster (root; starts it when needed).
	hack/e2e/run --label-filter='!full'

.PHONY: e2e-full
e2e-full: up ## All end-to-end tests, the long ones too.
	hack/e2e/run

.PHONY: faults
faults: envtest-bin redis-server ## The fault matrix: each fault of Redis under load, in each failure mode; prints a table and writes bin/faults/results.json.
	KUBEBUILDER_ASSETS="$(KUBEBUILDER_ASSETS)" hack/faults/run --label-filter=matrix

.PHONY: faults-ci
faults-ci: envtest-bin redis-server ## The part of the fault matrix that every change must pass: a fault of each kind.
	KUBEBUILDER_ASSETS="$(KUBEBUILDER_ASSETS)" hack/faults/run --label-filter=ci

.PHONY: soak
soak: envtest-bin redis-server ## Ten minutes of random faults: no leak, no drift.
	KUBEBUILDER_ASSETS="$(KUBEBUILDER_ASSETS)" hack/faults/run --label-filter=soak

.PHONY: demo
demo: ## Show the product at work on a cluster of this machine (root; starts it when needed, leaves it up).
	hack/demo/run

##@ Deploy to the current context

.PHONY: deploy
deploy: ## Install on the current kubectl context: make deploy IMG=… SIDECAR_IMG=… REDIS_ADDRS=host:port,… [REDIS_USERNAME=… REDIS_PASSWORD=…]
	KUBECTL="$(KUBECTL)" hack/deploy "$(IMG)" "$(SIDECAR_IMG)" "$(REDIS_ADDRS)"

.PHONY: undeploy
undeploy: ## Remove Portero from the current context, with the CRD and all policies.
	$(KUBECTL) delete -k config/default --ignore-not-found
