# shellcheck shell=bash
# Our images, made without a container engine and without a registry: static binaries in one layer, imported into containerd.

images_dir="$cluster_dir/images"

# name, Go package, further arguments of hack/cluster/image/pack
image_list() {
  cat <<'LIST'
pause ./hack/cluster/pause
testapp ./hack/testapp -port 8080
manager ./cmd/manager
sidecar ./cmd/sidecar
LIST
}

# version_flags PACKAGE: only our products have a version; the others stay the same from commit to commit.
version_flags() {
  if [[ "$1" == ./cmd/* ]]; then
    printf -- '-X github.com/portero-dev/portero/internal/version.Version=%s' "$(git -C "$repo" describe --tags --always --dirty 2>/dev/null || echo dev)"
  fi
}

# build_images: leaves a fresh tar in images/ for each image whose binary changed, and names it in images/changed.
build_images() {
  local name package rest
  mkdir -p "$images_dir"
  : >"$images_dir/changed"
  (cd "$repo" && CGO_ENABLED=0 go build -buildvcs=false -o "$images_dir/.pack" ./hack/cluster/image/pack)
  while read -r name package rest; do
    [ -d "$repo/$package" ] || { say "  no $package in this checkout, so no image $name"; continue; }
    (cd "$repo" && CGO_ENABLED=0 go build -buildvcs=false -ldflags "-s -w $(version_flags "$package")" -o "$images_dir/.$name" "$package")
    if [ -e "$images_dir/$name.tar" ] && cmp -s "$images_dir/.$name" "$images_dir/$name"; then continue; fi
    mv "$images_dir/.$name" "$images_dir/$name"
    # shellcheck disable=SC2086 # several words are meant
    "$images_dir/.pack" -name "portero.dev/$name:dev" -user 65532:65532 -out "$images_dir/$name.tar" $rest "$images_dir/$name"
    echo "$name" >>"$images_dir/changed"
  done < <(image_list)
}

import_images() {
  local name
  while read -r name; do
    inside "$binaries/ctr" -n k8s.io images import "$images_dir/$name.tar" >>"$cluster_dir/log/images" 2>&1
    say "  imported portero.dev/$name:dev"
  done <"$images_dir/changed"
}
