# shellcheck shell=bash
# The Debian packages that the cluster and the tests stand on.

# set, package, a command or file that it brings
package_list() {
  cat <<'LIST'
redis redis-server redis-server
redis redis-tools redis-cli
cluster iproute2 ip
cluster nftables nft
cluster runc runc
cluster containernetworking-plugins /usr/lib/cni/bridge
cluster util-linux nsenter
cluster procps sysctl
cluster openssl openssl
cluster curl curl
LIST
}

# known_package NAME: whether NAME is a set or a package of the list.
known_package() { [ "$1" = all ] || package_list | cut -d' ' -f1,2 | tr ' ' '\n' | grep -qx -e "$1"; }

# install_packages SET_OR_PACKAGE...: installs what is missing, and says so. No packaged service is started or left enabled.
install_packages() {
  local wanted=" $* " set package proof missing=() policy=/usr/sbin/policy-rc.d
  while read -r set package proof; do
    case "$wanted" in *" $set "* | *" $package "* | *" all "*) ;; *) continue ;; esac
    if ! command -v "$proof" >/dev/null && [ ! -e "$proof" ] && [ ! -e "/usr/sbin/$proof" ]; then missing+=("$package"); fi
  done < <(package_list)
  [ "${#missing[@]}" -gt 0 ] || return 0
  command -v apt-get >/dev/null || die "these Debian packages or their like are needed: ${missing[*]}"
  say "installing Debian packages: ${missing[*]}"
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    # shellcheck disable=SC2064 # the name is known now
    trap "rm -f $policy" EXIT
  else
    policy="" # somebody else's
  fi
  apt-get update -qq >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  case " ${missing[*]} " in
    *" redis-server "*) if command -v systemctl >/dev/null; then systemctl disable redis-server >/dev/null 2>&1 || true; fi ;;
  esac
  if [ -n "$policy" ]; then
    rm -f "$policy"
    trap - EXIT
  fi
}
