# shellcheck shell=bash
# The node: containerd, kubelet, kube-proxy, and DNS.

pause_image=portero.dev/pause:dev

write_node_configuration() {
  mkdir -p "$cluster_dir/conf/cni"
  # restrict_oom_score_adj: without CAP_SYS_RESOURCE a container can't get a lower score, and every sandbox would fail.
  cat >"$cluster_dir/conf/containerd.toml" <<TOML
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "$pause_image"

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "$cluster_dir/conf/cni"

[plugins.'io.containerd.nri.v1.nri']
  disable = true
TOML
  cat >"$cluster_dir/conf/cni/10-portero.conflist" <<JSON
{
  "cniVersion": "1.0.0",
  "name": "portero",
  "plugins": [{
    "type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "$pod_cidr"}], [{"subnet": "$pod_cidr6"}]]}
  }]
}
JSON
  # Pods ask cluster DNS only: there is nothing else to ask in this network.
  echo "nameserver $node_ip" >"$cluster_dir/conf/resolv.conf"
  cat >"$cluster_dir/conf/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $cluster_dir/pki/ca.crt}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$cluster_id
failCgroupV1: false
failSwapOn: false
clusterDomain: cluster.local
clusterDNS: [$dns_ip, "$dns_ip6"]
resolvConf: $cluster_dir/conf/resolv.conf
volumePluginDir: /var/lib/kubelet/plugins-exec
# Images can't be pulled again, so none may be collected, and a full disk is the owner's to see.
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
serializeImagePulls: false
YAML
  cat >"$cluster_dir/conf/Corefile" <<CONF
. {
  bind $node_ip $node_ip6
  errors
  health 127.0.0.1:8053
  kubernetes cluster.local in-addr.arpa ip6.arpa {
    kubeconfig $cluster_dir/kubeconfig/coredns
    pods insecure
    ttl 5
  }
  cache 5
}
CONF
}

containerd_ready() { inside "$binaries/ctr" version; }

start_containerd() {
  write_node_configuration
  launch containerd env PATH="$binaries:$PATH" "$binaries/containerd" --config "$cluster_dir/conf/containerd.toml"
  wait_for 30 "containerd, see $cluster_dir/log/containerd" containerd_ready
}

node_ready() { kubectl wait --for=condition=Ready "node/$node_name" --timeout=60s; }

start_node() {
  launch kubelet "$binaries/kubelet" --config="$cluster_dir/conf/kubelet.yaml" --kubeconfig="$cluster_dir/kubeconfig/kubelet" \
    --hostname-override="$node_name" --node-ip="$node_ip,$node_ip6"
  wait_for 60 "the node, see $cluster_dir/log/kubelet" node_ready
  # kube-proxy ends when the node's addresses change, so it comes last.
  launch kube-proxy "$binaries/kube-proxy" --kubeconfig="$cluster_dir/kubeconfig/kube-proxy" --hostname-override="$node_name" \
    --proxy-mode=nftables --cluster-cidr="$pod_cidr,$pod_cidr6" --conntrack-max-per-core=0 \
    --metrics-bind-address=127.0.0.1:10249 --healthz-bind-address=127.0.0.1:10256
}

dns_answers() { in_network curl -fsS http://127.0.0.1:8053/health; }

start_dns() {
  kubectl apply -f - >/dev/null <<YAML
$(sed -e "s/@NODE_IP6@/$node_ip6/; s/@NODE_IP@/$node_ip/; s/@DNS_IP6@/$dns_ip6/; s/@DNS_IP@/$dns_ip/" "$here/manifests/dns.yaml")
YAML
  launch coredns "$binaries/coredns" -conf "$cluster_dir/conf/Corefile"
  wait_for 30 "CoreDNS, see $cluster_dir/log/coredns" dns_answers
}
