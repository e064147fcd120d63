# shellcheck shell=bash
# The Redis Cluster: nodes 1..3 start as masters, 4..6 as their replicas; each has an address of its own, so that a test can cut one off.

redis_password_file="$cluster_dir/redis/password"

redis_addrs() {
  local n separator=""
  for n in $(seq "$redis_nodes"); do printf '%s%s:%s' "$separator" "$(redis_ip "$n")" "$redis_port"; separator=,; done
}

# redis_cli ARGS...: redis-cli as the administrator, for at most redis_patience; the password stays out of the process list.
redis_patience=60
redis_cli() {
  REDISCLI_AUTH="$(cat "$redis_password_file")" in_network timeout "$redis_patience" redis-cli --user "$redis_user" --no-auth-warning "$@"
}

configure_redis() {
  local n dir password
  mkdir -p "$cluster_dir/redis"
  (umask 077; openssl rand -hex 24 >"$redis_password_file")
  password="$(cat "$redis_password_file")"
  for n in $(seq "$redis_nodes"); do
    dir="$cluster_dir/redis/$n"
    mkdir -p "$dir"
    (umask 077; cat >"$dir/redis.conf" <<CONF)
port $redis_port
bind $(redis_ip "$n")
bind-source-addr $(redis_ip "$n")
cluster-announce-ip $(redis_ip "$n")
protected-mode no
dir $dir
cluster-enabled yes
cluster-config-file nodes.conf
cluster-node-timeout 5000
cluster-require-full-coverage no
maxmemory 256mb
maxmemory-policy noeviction
save ""
appendonly no
shutdown-timeout 0
user default off
user $redis_user on ~* &* +@all >$password
masteruser $redis_user
masterauth $password
CONF
  done
}

redis_answers() { [ "$(redis_cli -h "$(redis_ip "$1")" -p "$redis_port" ping)" = PONG ]; }

# launch_redis_node N: a restarted node finds its cluster again by its nodes.conf; its data, users and functions are gone.
launch_redis_node() { running "redis-$1" || launch "redis-$1" redis-server "$cluster_dir/redis/$1/redis.conf"; }

await_redis_node() { wait_for 30 "Redis node $1, see $cluster_dir/log/redis-$1" redis_answers "$1"; }

start_redis_node() {
  launch_redis_node "$1"
  await_redis_node "$1"
}

stopped() { ! running "$1"; }

# stop_redis_node N: a node that was paused has to be woken to see the signal.
stop_redis_node() {
  signal "redis-$1" TERM || return 0
  signal "redis-$1" CONT || true
  wait_for 10 "Redis node $1 to end" stopped "redis-$1"
}

for_redis_nodes() {
  local n
  for n in $(seq "$redis_nodes"); do "$1" "$n"; done
}

# redis_settled: every running master says ok and every slot is served.
redis_settled() {
  local n info want
  for n in $(seq "$redis_nodes"); do
    running "redis-$n" || continue
    info="$(redis_cli -h "$(redis_ip "$n")" -p "$redis_port" cluster info | tr -d '\r')"
    for want in cluster_state:ok cluster_slots_ok:16384 "cluster_known_nodes:$redis_nodes"; do
      grep -qx "$want" <<<"$info" || { echo "node $n lacks $want"; return 1; }
    done
  done
}

# tell_redis_node N: sends the commands on stdin, and fails unless each is answered OK.
tell_redis_node() {
  local answers
  answers="$(redis_cli -h "$(redis_ip "$1")" -p "$redis_port")"
  if grep -vx -e OK -e '' <<<"$answers" >&2; then return 1; fi
}

# claim_slots N: an epoch for each node, which it takes only before it knows another, and a share of the slots for each master.
claim_slots() {
  {
    echo "cluster set-config-epoch $1"
    if [ "$1" -le "$redis_masters" ]; then
      echo "cluster addslotsrange $((16384 * ($1 - 1) / redis_masters)) $((16384 * $1 / redis_masters - 1))"
    fi
  } | tell_redis_node "$1"
}

# meet_others N: each node is told of all others, so that nobody waits for gossip.
meet_others() {
  local other
  for other in $(seq "$redis_nodes"); do [ "$other" = "$1" ] || echo "cluster meet $(redis_ip "$other") $redis_port"; done | tell_redis_node "$1"
}

redis_replicates() {
  local id
  id="$(redis_cli -h "$(redis_ip $(($1 - redis_masters)))" -p "$redis_port" cluster myid)"
  redis_cli -h "$(redis_ip "$1")" -p "$redis_port" cluster replicate "$id" | grep -x OK
}

redis_synced() { redis_cli -h "$(redis_ip "$1")" -p "$redis_port" info replication | tr -d '\r' | grep -x master_link_status:up; }

start_redis() {
  local n
  configure_redis
  for_redis_nodes launch_redis_node
  for_redis_nodes await_redis_node
  for_redis_nodes claim_slots
  for_redis_nodes meet_others
  for n in $(seq $((redis_masters + 1)) "$redis_nodes"); do wait_for 20 "node $n to replicate" redis_replicates "$n"; done
  for n in $(seq $((redis_masters + 1)) "$redis_nodes"); do wait_for 20 "node $n to be in sync" redis_synced "$n"; done
  wait_for 20 "the Redis Cluster" redis_settled
}
