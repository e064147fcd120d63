# shellcheck shell=bash
# Which binaries the cluster is made of, how each is built, and where they are kept.

kube_version="$(sed -nE 's|^(require)?[[:space:]]*k8s\.io/kubernetes (v[0-9.]+).*|\2|p' "$here/modules/kubernetes/go.mod")"

build_flags() {
  local ldflags="-s -w" minor v=k8s.io/component-base/version
  minor="${kube_version#v1.}"
  # Without the stamp clients misread the server as v0.0.0.
  if [ "$1" = kubernetes ]; then
    ldflags+=" -X $v.gitVersion=$kube_version -X $v.gitMajor=1 -X $v.gitMinor=${minor%%.*} -X $v.gitTreeState=clean"
  fi
  printf '%s' "$ldflags"
}

# set, module folder, binary, package, weight: the seconds it once took cold on 2 quick cores
recipes() {
  cat <<'LIST'
envtest kubernetes kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver 200
envtest kubernetes kubectl k8s.io/kubernetes/cmd/kubectl 20
envtest etcd etcd go.etcd.io/etcd/server/v3 6
node kubernetes kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager 60
node kubernetes kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler 6
node kubernetes kubelet k8s.io/kubernetes/cmd/kubelet 16
node kubernetes kube-proxy k8s.io/kubernetes/cmd/kube-proxy 8
node containerd containerd github.com/containerd/containerd/v2/cmd/containerd 75
node containerd containerd-shim-runc-v2 github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2 5
node containerd ctr github.com/containerd/containerd/v2/cmd/ctr 5
node containerd crictl sigs.k8s.io/cri-tools/cmd/crictl 10
dns coredns coredns github.com/coredns/coredns 90
LIST
}

binaries="$cache_root/$({
  cat "$here"/modules/*/go.mod "$here"/modules/*/go.sum
  build_flags kubernetes
  recipes
  go env GOVERSION GOARCH
} | sha256sum | cut -c1-16)"

prune_binaries() {
  local dir
  for dir in "$cache_root"/*/; do
    if [ -d "$dir" ] && [ "${dir%/}" != "$binaries" ]; then
      say "removing $dir"
      rm -rf "$dir"
    fi
  done
}

# build_one MODULE BINARY PACKAGE: builds under a temporary name, so that a reader never sees half a file.
build_one() {
  local module="$1" name="$2" package="$3" dir="$1"
  if [ "$module" = etcd ]; then dir=kubernetes; fi # etcd is pinned with the API server that it serves
  (cd "$here/modules/$dir" && GOFLAGS=-buildvcs=false CGO_ENABLED=0 GOWORK=off \
    go build -ldflags "$(build_flags "$module")" -o "$binaries/.$name" "$package") &&
    mv "$binaries/.$name" "$binaries/$name"
}

# build_loudly: build_one with a sign of life every 30 s, because go says nothing for minutes.
build_loudly() {
  local began="$SECONDS" building
  build_one "$@" &
  building=$!
  while kill -0 "$building" 2>/dev/null; do
    if [ $(((SECONDS - began) % 30)) = 29 ]; then
      say "        still building $2 ($((SECONDS - began + 1)) s)"
      sleep 1
    fi
    sleep 0.5
  done
  wait "$building"
}

build_sets() {
  local wanted=" $* " todo=() set module name package weight total=0 done=0 n=0 began started left line
  while read -r set module name package weight; do
    case "$wanted" in *" $set "* | *" all "*) ;; *) continue ;; esac
    [ -x "$binaries/$name" ] || todo+=("$module $name $package $weight")
  done < <(recipes)
  [ "${#todo[@]}" -gt 0 ] || return 0

  mkdir -p "$binaries"
  exec 8>"$binaries/.lock"
  if ! flock -n 8; then
    say "another build of the same binaries is at work; waiting for it"
    flock 8
  fi
  for line in "${todo[@]}"; do total=$((total + ${line##* })); done
  say "building ${#todo[@]} binaries into $binaries: seconds with a warm Go cache; cold, $((total / 60 + 1)) to $((total / 20 + 1)) min on 2 cores"
  started="$SECONDS"
  for line in "${todo[@]}"; do
    read -r module name package weight <<<"$line"
    n=$((n + 1))
    [ -x "$binaries/$name" ] && continue
    began="$SECONDS"
    left=""
    if [ "$done" -gt 0 ]; then left=", about $(((began - started) * (total - done) / done)) s left"; fi
    say "  [$n/${#todo[@]}] $name ($((100 * weight / total)) % of the work$left)"
    build_loudly "$module" "$name" "$package" || die "building $name from $package failed"
    say "  [$n/${#todo[@]}] $name took $((SECONDS - began)) s"
    done=$((done + weight))
  done
  exec 8>&-
}
