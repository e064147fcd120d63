# shellcheck shell=bash
# Makes and removes what holds the cluster: namespaces, cgroups, the state folder.

# Kubelet sets these for the whole machine; `down` puts the old values back.
kubelet_sysctls=(vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys kernel.keys.root_maxbytes)

# cgroup_hierarchies: the mount points, one per controller on v1, one in all on v2.
cgroup_hierarchies() { awk '$3 == "cgroup" || $3 == "cgroup2" {print $2}' /proc/self/mounts; }

make_cgroups() {
  local top file
  while read -r top; do
    mkdir -p "$top/$cluster_id"
    # A new cpuset is empty on v1, and takes no process before it has cores and memory nodes.
    for file in cpuset.cpus cpuset.mems; do
      if [ -f "$top/tasks" ] && [ -f "$top/$file" ]; then cat "$top/$file" >"$top/$cluster_id/$file"; fi
    done
  done < <(cgroup_hierarchies)
}

remove_cgroups() {
  local top deadline=$((SECONDS + 10))
  while read -r top; do
    [ -d "$top/$cluster_id" ] || continue
    # The kernel frees a group some moments after its last process is gone.
    until find "$top/$cluster_id" -depth -type d -exec rmdir {} + 2>/dev/null; do
      [ "$SECONDS" -lt "$deadline" ] || { say "cgroup $top/$cluster_id is still in use"; return 1; }
      sleep 0.1
    done
  done < <(cgroup_hierarchies)
}

# start_namespaces: everything the cluster has is a child of the process started here.
start_namespaces() {
  mkdir -p "$cluster_dir"/{pids,log,kubeconfig,pki,conf}
  chmod 700 "$cluster_dir"
  touch "$cluster_dir/.portero-cluster" # tells `down` that the folder is ours to remove
  sysctl -e "${kubelet_sysctls[@]}" >"$cluster_dir/sysctls" 2>/dev/null
  make_cgroups
  setsid unshare --mount --propagation private --net --uts --ipc --pid --fork --mount-proc \
    bash "$here/lib/init.sh" "$binaries" >"$cluster_dir/log/init" 2>&1 </dev/null 9<&- &
  local holder_pid=$! init_pid
  echo "$holder_pid $(start_time "$holder_pid")" >"$holder_file"
  wait_for 10 "the namespaces' first process" pgrep -P "$holder_pid" >/dev/null
  init_pid="$(pgrep -P "$holder_pid")"
  echo "$init_pid $(start_time "$init_pid")" >"$init_file"
  wait_for 20 "mounts and network, see $cluster_dir/log/init" test -e "$cluster_dir/ready"
}

gone() { ! alive "$1"; }

# stop_namespaces: kills process 1; it ends only when all others in its pid namespace have ended, so its end is theirs.
stop_namespaces() {
  local file
  for file in "$init_file" "$holder_file"; do
    if alive "$file"; then kill -KILL "$(cut -d' ' -f1 "$file")" 2>/dev/null || true; fi
    wait_for 30 "the processes of the cluster to end" gone "$file"
  done
}

# tear_down: safe at any point of a start, after a crash, and when there is nothing.
tear_down() {
  if [ ! -e "$cluster_dir" ]; then return 0; fi
  [ -e "$cluster_dir/.portero-cluster" ] || [ -z "$(ls -A "$cluster_dir")" ] ||
    die "$cluster_dir holds something else; choose another PORTERO_CLUSTER_DIR"
  stop_namespaces
  remove_cgroups
  if [ -s "$cluster_dir/sysctls" ]; then sysctl -q -p "$cluster_dir/sysctls" || say "some sysctls of $cluster_dir/sysctls could not be restored"; fi
  rm -rf "$cluster_dir"
}
