# shellcheck shell=bash
# The Redis Cluster: nodes 1..3 start as masters, 4..6 as their replicas; each has an address of its own, so that a test can cut one off.

redis_password_file="$cluster_dir/redis/password"

redis_addrs() {
  local n separator=""
  for n in "${redis_nodes[@]}"; do printf '%s%s:%s' "$separator" "${redis_ips[n]}" "$redis_port"; separator=,; done
}

# redis_cli ARGS...: redis-cli as the administrator, for at most redis_patience seconds when that is set; the password stays out of
# the process list.
redis_patience=
redis_cli() { REDISCLI_AUTH="$(<"$redis_password_file")" in_network ${redis_patience:+timeout "$redis_patience"} redis-cli --user "$redis_user" --no-auth-warning "$@"; }

# ask_redis N ARGS...: one question to node N.
ask_redis() {
  local ip="${redis_ips[$1]}"
  shift
  redis_cli -h "$ip" -p "$redis_port" "$@"
}

# tell_redis N: sends node N the commands on stdin, and fails unless each is answered OK. redis-cli that can't connect ends well, without an
# answer, so the answers are counted.
tell_redis() {
  local commands answers
  commands="$(cat)"
  answers="$(ask_redis "$1" <<<"$commands")" || return 1
  [ "$(grep -cx OK <<<"$answers")" -eq "$(wc -l <<<"$commands")" ] || { echo "$answers"; return 1; }
}

for_redis_nodes() {
  local n
  for n in "${redis_nodes[@]}"; do "$1" "$n"; done
}

configure_redis() {
  local n dir password
  mkdir -p "$cluster_dir/redis"
  (umask 077; openssl rand -hex 24 >"$redis_password_file")
  password="$(<"$redis_password_file")"
  for n in "${redis_nodes[@]}"; do
    dir="$cluster_dir/redis/$n"
    mkdir -p "$dir"
    (umask 077; cat >"$dir/redis.conf" <<CONF)
port $redis_port
bind ${redis_ips[n]}
bind-source-addr ${redis_ips[n]}
cluster-announce-ip ${redis_ips[n]}
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
repl-diskless-sync-delay 0
user default off
user $redis_user on ~* &* +@all >$password
masteruser $redis_user
masterauth $password
CONF
  done
}

# launch_redis_node N: a restarted node finds its cluster again by its nodes.conf; its data, users and functions are gone.
launch_redis_node() { running "redis-$1" || launch "redis-$1" redis-server "$cluster_dir/redis/$1/redis.conf"; }

redis_answers() { [ "$(ask_redis "$1" ping)" = PONG ]; }

await_redis_node() { wait_for 30 "Redis node $1, see $cluster_dir/log/redis-$1" redis_answers "$1"; }

start_redis_node() {
  launch_redis_node "$1"
  await_redis_node "$1"
}

# end_redis_node N: a node that was paused has to be woken to see the signal.
end_redis_node() {
  if signal "redis-$1" TERM; then signal "redis-$1" CONT 2>/dev/null || true; fi
}

stopped() { ! running "$1"; }

await_redis_end() { wait_for 10 "Redis node $1 to end" stopped "redis-$1"; }

# redis_settled: every running node says ok and every slot is served.
redis_settled() {
  local n info want
  for n in "${redis_nodes[@]}"; do
    running "redis-$n" || continue
    info="$(ask_redis "$n" cluster info)" || return 1
    for want in cluster_state:ok cluster_slots_ok:16384 "cluster_known_nodes:${#redis_nodes[@]}"; do
      if [[ "$info" != *"$want"* ]]; then echo "node $n lacks $want"; return 1; fi
    done
  done
}

# claim_slots N: an epoch for each node, which it takes only before it knows another, and a share of the slots for each master.
claim_slots() {
  {
    echo "cluster set-config-epoch $1"
    if [ "$1" -le "$redis_masters" ]; then
      echo "cluster addslotsrange $((16384 * ($1 - 1) / redis_masters)) $((16384 * $1 / redis_masters - 1))"
    fi
  } | tell_redis "$1"
}

# meet_others N: each node is told of all others, so that nobody waits for gossip.
meet_others() {
  local other
  for other in "${redis_nodes[@]}"; do
    if [ "$other" != "$1" ]; then echo "cluster meet ${redis_ips[other]} $redis_port"; fi
  done | tell_redis "$1"
}

redis_replicates() {
  local id
  id="$(ask_redis $(($1 - redis_masters)) cluster myid)"
  echo "cluster replicate $id" | tell_redis "$1"
}

redis_synced() { [[ "$(ask_redis "$1" info replication)" == *master_link_status:up* ]]; }

start_redis() {
  local n
  configure_redis
  for_redis_nodes launch_redis_node
  for n in "${redis_nodes[@]}"; do wait_for 30 "Redis node $n, see $cluster_dir/log/redis-$n" claim_slots "$n"; done
  for_redis_nodes meet_others
  for n in "${redis_nodes[@]:redis_masters}"; do wait_for 20 "node $n to replicate" redis_replicates "$n"; done
  for n in "${redis_nodes[@]:redis_masters}"; do wait_for 20 "node $n to be in sync" redis_synced "$n"; done
  wait_for 20 "the Redis Cluster" redis_settled
}
