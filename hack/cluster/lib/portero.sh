# shellcheck shell=bash
# Installs Portero from config/default, by the same command as a user with a cluster of their own.

install_portero() {
  local restart=false
  # Equal tags: a Deployment that is there already does not notice a new image.
  if grep -qsx manager "$images_dir/changed" && kubectl -n portero-system get deployment portero-manager >/dev/null 2>&1; then restart=true; fi
  REDIS_USERNAME="$redis_user" REDIS_PASSWORD="$(cat "$redis_password_file")" KUBECONFIG="$kubeconfig" KUBECTL="$binaries/kubectl" \
    in_network "$repo/hack/deploy" portero.dev/manager:dev portero.dev/sidecar:dev "$(redis_addrs)" >"$cluster_dir/log/deploy" 2>&1 ||
    { tail -20 "$cluster_dir/log/deploy" >&2; return 1; }
  if $restart; then restart_manager; fi
}

restart_manager() {
  kubectl -n portero-system rollout restart deployment portero-manager >/dev/null
  kubectl -n portero-system rollout status deployment portero-manager --timeout=180s >/dev/null
}
