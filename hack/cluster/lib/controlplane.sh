# shellcheck shell=bash
# Certificates, identities, etcd, the API server and its controllers.

# certificate NAME SUBJECT [EXTENSION...]: a key and a certificate of the cluster's CA (of itself for the CA).
certificate() {
  local name="$1" subject="$2" args=()
  shift 2
  for extension in "$@"; do args+=(-addext "$extension"); done
  if [ "$name" != ca ]; then args+=(-CA "$cluster_dir/pki/ca.crt" -CAkey "$cluster_dir/pki/ca.key"); fi
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -config "$cluster_dir/conf/openssl" \
    -subj "$subject" -keyout "$cluster_dir/pki/$name.key" -out "$cluster_dir/pki/$name.crt" "${args[@]}" 2>/dev/null
}

# identity NAME USER [GROUP]: a token, and a kubeconfig that carries it.
identity() {
  local token
  token="$(openssl rand -hex 24)"
  echo "$token,$2,$1,\"${3:-system:authenticated}\"" >>"$cluster_dir/pki/tokens.csv"
  cat >"$cluster_dir/kubeconfig/$1" <<YAML
apiVersion: v1
kind: Config
clusters:
- name: portero
  cluster:
    server: https://$node_ip:6443
    certificate-authority-data: $(base64 -w0 "$cluster_dir/pki/ca.crt")
users:
- name: $1
  user: {token: $token}
contexts:
- name: portero
  context: {cluster: portero, user: $1}
current-context: portero
YAML
  chmod 600 "$cluster_dir/kubeconfig/$1"
}

make_identities() {
  (umask 077
    printf '[req]\ndistinguished_name = dn\n[dn]\n' >"$cluster_dir/conf/openssl"
    certificate ca /CN=portero-cluster-ca basicConstraints=critical,CA:TRUE keyUsage=critical,keyCertSign,cRLSign,digitalSignature
    certificate apiserver /CN=kube-apiserver extendedKeyUsage=serverAuth \
      "subjectAltName=DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:$node_ip,IP:$node_ip6,IP:$kubernetes_ip"
    certificate kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client extendedKeyUsage=clientAuth
    openssl ecparam -genkey -name prime256v1 -noout -out "$cluster_dir/pki/service-account.key"
    identity admin admin system:masters
    identity kubelet "system:node:$node_name" system:nodes
    identity kube-controller-manager system:kube-controller-manager
    identity kube-scheduler system:kube-scheduler
    identity kube-proxy system:kube-proxy
    identity coredns system:coredns)
}

start_control_plane() {
  local pki="$cluster_dir/pki"
  # Nobody misses the data of a development cluster after a crash, so etcd need not wait for the disk.
  launch etcd "$binaries/etcd" --data-dir="$cluster_dir/etcd" --unsafe-no-fsync --log-level=warn \
    --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
    --listen-peer-urls=http://127.0.0.1:2380
  launch kube-apiserver "$binaries/kube-apiserver" \
    --etcd-servers=http://127.0.0.1:2379 --advertise-address="$node_ip" --secure-port=6443 \
    --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
    --client-ca-file="$pki/ca.crt" --token-auth-file="$pki/tokens.csv" \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true \
    --service-cluster-ip-range="$service_cidr,$service_cidr6" \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$pki/service-account.key" \
    --service-account-signing-key-file="$pki/service-account.key" \
    --kubelet-preferred-address-types=InternalIP \
    --kubelet-client-certificate="$pki/kubelet-client.crt" --kubelet-client-key="$pki/kubelet-client.key"
  wait_for 60 "the API server, see $cluster_dir/log/kube-apiserver" kubectl get --raw /readyz
  launch kube-controller-manager "$binaries/kube-controller-manager" --kubeconfig="$cluster_dir/kubeconfig/kube-controller-manager" \
    --bind-address=127.0.0.1 --leader-elect=false --use-service-account-credentials --root-ca-file="$pki/ca.crt" \
    --service-account-private-key-file="$pki/service-account.key" \
    --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key"
  launch kube-scheduler "$binaries/kube-scheduler" --kubeconfig="$cluster_dir/kubeconfig/kube-scheduler" \
    --bind-address=127.0.0.1 --leader-elect=false
}
