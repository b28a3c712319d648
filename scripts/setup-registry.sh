#!/usr/bin/env bash
# A container registry and a Docker engine on this machine only, for tests: unattended, idempotent, stopped by name of folder.
#
#   bash scripts/setup-registry.sh install               Debian's docker-registry, docker.io and htpasswd (root)
#   bash scripts/setup-registry.sh registry DIR [tls]    start one on a free port of 127.0.0.1; prints its URL
#   bash scripts/setup-registry.sh engine DIR [URL]      start dockerd (root), URL being a plain registry; prints DOCKER_HOST
#   bash scripts/setup-registry.sh stop DIR              stop what was started with DIR
#
# With tls the registry has a self-signed certificate (DIR/tls.crt) and wants the user ci with the password ci-secret.
# The engine has no network of its own and serves the socket DIR/docker.sock to root only.
set -euo pipefail

fail() { printf '%s\n' "registry: $*" >&2; exit 1; }

install_packages() {
  local package missing=()
  for package in apache2-utils docker-registry docker.io openssl; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ "${#missing[@]}" -gt 0 ] || return 0
  local sudo=()
  [ "$(id -u)" = 0 ] || sudo=(sudo -n)
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 \
    install --no-install-recommends "${missing[@]}" </dev/null >/dev/null
}

alive() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Python's own client: no curl is needed, and 401 is an answer too.
answers() {
  python3 - "$1" <<'PYTHON'
import ssl, sys, urllib.error, urllib.request
context = ssl._create_unverified_context()
try:
    urllib.request.urlopen(sys.argv[1], timeout=2, context=context)
except urllib.error.HTTPError as error:
    sys.exit(error.code != 401)
except OSError:
    sys.exit(1)
PYTHON
}

start_registry() {
  local dir=$1 kind=${2:-plain} url
  if alive "$dir/registry.pid"; then cat "$dir/url"; return; fi
  mkdir -p "$dir/data"
  url=http://127.0.0.1:$(free_port)
  [ "$kind" = plain ] || url=https${url#http}
  printf 'version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s/data}, delete: {enabled: true}}\nhttp:\n  addr: %s\n' \
    "$dir" "${url##*/}" >"$dir/config.yml"
  if [ "$kind" = tls ]; then
    openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
      -keyout "$dir/tls.key" -out "$dir/tls.crt" 2>/dev/null
    htpasswd -Bbn ci ci-secret >"$dir/htpasswd" # the registry takes bcrypt only
    printf '  tls: {certificate: %s/tls.crt, key: %s/tls.key}\nauth: {htpasswd: {realm: ci, path: %s/htpasswd}}\n' \
      "$dir" "$dir" "$dir" >>"$dir/config.yml"
  fi
  env -i PATH=/usr/bin:/bin OTEL_TRACES_EXPORTER=none setsid docker-registry serve "$dir/config.yml" \
    </dev/null >"$dir/registry.log" 2>&1 &
  echo $! >"$dir/registry.pid"
  for _ in $(seq 100); do
    if answers "$url/v2/"; then echo "$url" | tee "$dir/url"; return; fi
    alive "$dir/registry.pid" || break
    sleep 0.1
  done
  fail "it did not start: $(tail -n 3 "$dir/registry.log")"
}

start_engine() {
  local dir=$1 plain=${2:-}
  mkdir -p "$dir"
  if ! alive "$dir/engine.pid"; then
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin setsid dockerd --host "unix://$dir/docker.sock" --data-root "$dir/engine" \
      --exec-root "$dir/exec" --pidfile "$dir/engine.pid" --iptables=false --ip6tables=false --bridge=none \
      ${plain:+--insecure-registry "${plain##*/}"} </dev/null >"$dir/engine.log" 2>&1 &
  fi
  for _ in $(seq 300); do
    if docker --host "unix://$dir/docker.sock" version >/dev/null 2>&1; then echo "unix://$dir/docker.sock"; return; fi
    sleep 0.1
  done
  fail "dockerd did not start: $(tail -n 3 "$dir/engine.log")"
}

stop() {
  local file process
  for file in "$1/registry.pid" "$1/engine.pid"; do
    alive "$file" || continue
    process=$(cat "$file")
    kill "$process"
    for _ in $(seq 100); do kill -0 "$process" 2>/dev/null || break; sleep 0.1; done
    rm -f "$file"
  done
  # dockerd leaves its data folder bound over itself, and nobody could remove that
  if mountpoint --quiet "$1/engine"; then umount "$1/engine"; fi
}

case ${1-} in
  install) install_packages ;;
  registry) start_registry "$(realpath -m "${2:?a folder is missing}")" "${3:-plain}" ;;
  engine) start_engine "$(realpath -m "${2:?a folder is missing}")" "${3:-}" ;;
  stop) stop "$(realpath -m "${2:?a folder is missing}")" ;;
  *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
