# shellcheck shell=bash
# Installs Portero from config/default, as a user would, and tells it where Redis is.

install_portero() {
  [ -d "$repo/config/default" ] || { say "  no config/default in this checkout, so Portero is not installed"; return 0; }
  kubectl apply --server-side --force-conflicts -k "$repo/config/default" >"$cluster_dir/log/install" 2>&1 ||
    { cat "$cluster_dir/log/install" >&2; return 1; }
  kubectl -n portero-system create secret generic portero-redis-admin --dry-run=client -o yaml \
    --from-literal=addrs="$(redis_addrs)" --from-literal=username="$redis_user" --from-file=password="$redis_password_file" |
    kubectl apply -f - >/dev/null
}

portero_ready() {
  [ -d "$repo/config/default" ] || return 0
  kubectl -n portero-system rollout status deployment --timeout=120s >/dev/null
}
