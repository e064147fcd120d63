# shellcheck shell=bash
# Sourced by every script of hack/cluster: paths, messages, and the one place that knows how to enter the cluster's namespaces.

here="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
repo="$(cd "$here/../.." && pwd)"
cluster_dir="${PORTERO_CLUSTER_DIR:-$repo/bin/cluster}"
case "$cluster_dir" in /*) ;; *) cluster_dir="$PWD/$cluster_dir" ;; esac
cache_root="${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/portero/cluster"
# Names the cgroups, so that clusters of two checkouts never meet.
cluster_id="portero-$(printf '%s' "$cluster_dir" | sha256sum | cut -c1-8)"
kubeconfig="$cluster_dir/kubeconfig/admin"

# Addresses, all inside the cluster's own network namespace.
node_name=portero
node_ip=172.30.0.1
node_ip6=fd00:30::1
pod_cidr=10.244.0.0/16
pod_cidr6=fd00:10:244::/64
service_cidr=10.96.0.0/16
service_cidr6=fd00:10:96::/112
kubernetes_ip=10.96.0.1
dns_ip=10.96.0.10
dns_ip6=fd00:10:96::a
redis_nodes=(1 2 3 4 5 6)
redis_masters=3
redis_port=6379
redis_user=portero-admin
redis_ips=(none 172.30.0.11 172.30.0.12 172.30.0.13 172.30.0.14 172.30.0.15 172.30.0.16)

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# usage FILE: prints the comment at the head of a script, which is its help.
usage() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$1"; }

need_root() { [ "$(id -u)" = 0 ] || die "the cluster needs root: it makes namespaces, mounts and cgroups"; }

# seconds: a clock for steps, with one decimal.
seconds() { printf '%.1f' "$(awk '{print $1}' /proc/uptime)"; }

# step TITLE CMD...: runs CMD and says how long it took. CMD is no condition here, so `set -e` holds within it.
step() {
  local began
  current_step="$1"
  shift
  began="$(seconds)"
  "$@"
  printf '%6.1f s  %s\n' "$(awk "BEGIN {print $(seconds) - $began}")" "$current_step" >&2
}

# wait_for SECONDS WHAT CMD...: polls CMD; on timeout names WHAT and shows CMD's last words.
wait_for() {
  local limit="$1" what="$2" out deadline
  shift 2
  deadline=$((SECONDS + limit))
  until out="$("$@" 2>&1)"; do
    if [ "$SECONDS" -ge "$deadline" ]; then
      say "waited $limit s for $what; last answer: ${out:-none}"
      return 1
    fi
    sleep 0.2
  done
}

# start_time PID: field 22 of stat; together with the id it names one process for good. Builtins only, because it is asked often.
start_time() {
  local stat fields
  read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
  read -ra fields <<<"${stat##*) }"
  echo "${fields[19]}"
}

# alive FILE: whether the process whose "id start-time" FILE holds still runs.
alive() {
  local pid began
  read -r pid began 2>/dev/null <"$1" || return 1
  [ -n "$pid" ] && [ -n "$began" ] && [ "$(start_time "$pid")" = "$began" ]
}

# The holder is an `unshare` process that owns the namespaces; its child is process 1 of the cluster's pid namespace, and when
# that one dies the kernel kills every process, mount and interface of the cluster.
holder_file="$cluster_dir/pids/holder"
init_file="$cluster_dir/pids/init"

cluster_running() { alive "$holder_file" && alive "$init_file"; }

# holder: sets holder_pid.
holder() { read -r holder_pid _ <"$holder_file"; }

need_cluster() { cluster_running || die "no cluster runs in $cluster_dir; start one with: make up"; }

# inside CMD...: runs CMD in all of the cluster's namespaces.
inside() {
  local ns
  holder
  ns="/proc/$holder_pid/ns"
  nsenter --mount="$ns/mnt" --net="$ns/net" --uts="$ns/uts" --ipc="$ns/ipc" --pid="$ns/pid_for_children" --wd=/ -- "$@"
}

# in_network CMD...: runs CMD in the cluster's network only, with this machine's files and processes.
in_network() {
  holder
  nsenter --net="/proc/$holder_pid/ns/net" -- "$@"
}

# launch NAME CMD...: starts a daemon inside, with its log in log/NAME and its id (as seen inside) in pids/NAME.
launch() {
  local name="$1"
  shift
  # shellcheck disable=SC2016 # expands inside
  inside setsid -f bash -c "$(declare -f start_time)"'
    echo "$$ $(start_time $$)" >"$1/pids/$2"
    log="$1/log/$2"
    shift 2
    exec "$@" >>"$log" 2>&1 </dev/null' launch "$cluster_dir" "$name" "$@" 9<&-
}

# running NAME: whether a launched daemon still runs.
running() {
  # shellcheck disable=SC2016 # expands inside
  inside bash -c "$(declare -f start_time)"'
    read -r pid began <"$1" && [ "$(start_time "$pid")" = "$began" ]' running "$cluster_dir/pids/$1" 2>/dev/null
}

# signal NAME SIGNAL: signals a launched daemon by its stored id, and only when that id is still it.
signal() {
  local pid
  running "$1" || return 1
  read -r pid _ <"$cluster_dir/pids/$1"
  inside kill "-$2" "$pid"
}

# kubectl keeps what it learnt of the API beside the cluster, not in the home folder.
export KUBECACHEDIR="$cluster_dir/kubectl-cache"
kubectl() { in_network "$binaries/kubectl" --kubeconfig="$kubeconfig" "$@"; }
