# syntax=docker/dockerfile:1

# Two images from one file: docker build --target manager … and --target sidecar …
#
# The binaries are static and need nothing from a base, so the default is an empty one. Choose another with
# --build-arg BASE=…, for a shell to look around, or because a policy asks for it. --build-arg BUILDER=… names
# the image with Go 1.26 that builds them. Without a registry, build them first and hand them over:
#
#   make build && docker build --build-context build=bin --target sidecar -t portero.dev/sidecar:dev .
ARG BASE=scratch
ARG BUILDER=golang:1.26

FROM --platform=$BUILDPLATFORM ${BUILDER} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY api/ api/
COPY cmd/ cmd/
COPY controllers/ controllers/
COPY internal/ internal/
COPY sidecar/ sidecar/
ARG TARGETOS TARGETARCH VERSION=dev
ENV CGO_ENABLED=0 GOFLAGS=-buildvcs=false
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
    -ldflags "-s -w -X github.com/portero-dev/portero/internal/version.Version=$VERSION" -o / ./cmd/manager ./cmd/sidecar

FROM ${BASE} AS manager
COPY --from=build /manager /manager
# Numeric, because runAsNonRoot can't look a name up and an empty base has no users.
USER 65532:65532
ENTRYPOINT ["/manager"]

FROM ${BASE} AS sidecar
COPY --from=build /sidecar /sidecar
USER 65532:65532
ENTRYPOINT ["/sidecar"]
