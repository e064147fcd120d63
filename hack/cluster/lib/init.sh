#!/usr/bin/env bash
# Process 1 of the cluster: gives the new namespaces a file system and a network of their own, then reaps orphans until killed.
# Runs inside; everything it does vanishes with it.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Kubelet and containerd write below these folders whatever their configuration says. An overlay with its upper layer in memory
# lets them, and leaves this machine's folders as they are, also where a mount point had to be made first.
hide_host_folders() {
  local folder layer back binaries_fd state_fd
  exec {state_fd}<"$cluster_dir" {binaries_fd}<"$1"
  mount -t tmpfs -o mode=0755 portero /run
  for folder in /var/lib /var/log /opt /usr/libexec; do
    [ -d "$folder" ] || continue
    layer="/run/overlay$folder"
    mkdir -p "$layer/upper" "$layer/work"
    mount -t overlay -o "lowerdir=$folder,upperdir=$layer/upper,workdir=$layer/work" portero "$folder"
  done
  # A state folder or cache below one of those must stay the real one.
  for back in "$state_fd $cluster_dir" "$binaries_fd $1"; do
    mkdir -p "${back#* }"
    mount --no-canonicalize --bind "/proc/self/fd/${back%% *}" "${back#* }"
  done
  exec {state_fd}<&- {binaries_fd}<&-
  # Images and volumes are too big for memory.
  for folder in containerd kubelet; do
    mkdir -p "$cluster_dir/$folder" "/var/lib/$folder"
    mount --bind "$cluster_dir/$folder" "/var/lib/$folder"
  done
  # Kubelet's volumes travel into containers by shared propagation.
  mount --make-rshared /
}

set_up_network() {
  local n
  ip link set lo up
  ip link add node0 type bridge
  ip address add "$node_ip/24" dev node0
  for n in "${redis_nodes[@]}"; do ip address add "${redis_ips[n]}/24" dev node0; done
  ip address add "$node_ip6/64" dev node0 nodad
  ip link set node0 up
  # Without default routes Service addresses would be unreachable before kube-proxy sees the packet.
  ip route add default dev node0
  ip -6 route add default dev node0
  sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
  # Pods share a bridge: without these, the answer of a pod behind a Service goes straight to the pod that asked, from the wrong address.
  sysctl -qw net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1
}

hostname "$node_name"
hide_host_folders "$1"
set_up_network
touch "$cluster_dir/ready"
while :; do
  sleep 3600 &
  wait $! || true
done
