#!/usr/bin/env bash
# Installs what is missing to build, test and run hivemind_c, and nothing else: system packages by apt, Python packages into .venv.
#   scripts/setup.sh system   a compiler, gRPC, protobuf-c, OpenSSL, xxHash, cmocka, and a Python >= 3.10 with its headers
#   scripts/setup.sh venv     .venv with requirements.txt (and the system packages first)
#   scripts/setup.sh browser  chromium, for the tests of the monitor's page
# When nothing is missing both are done in a moment. PYTHON=/path/to/python3 chooses the Python of .venv.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup: $*" >&2; }
fail() { say "$*"; exit 1; }

# What must be there, each with the Debian package that brings it.
missing_packages() {
  local tool library
  for tool in cc:build-essential make:make pkg-config:pkg-config protoc-c:protobuf-c-compiler ip:iproute2 nft:nftables unshare:util-linux; do
    PATH=$PATH:/usr/sbin:/sbin command -v "${tool%%:*}" >/dev/null || echo "${tool#*:}"
  done
  for library in grpc:libgrpc-dev libprotobuf-c:libprotobuf-c-dev libcrypto:libssl-dev libxxhash:libxxhash-dev cmocka:libcmocka-dev; do
    pkg-config --exists "${library%%:*}" 2>/dev/null || echo "${library#*:}"
  done
  find_python >/dev/null || echo python3-dev python3-venv
}

# The first Python >= 3.10 that has its headers and can make a virtual environment.
find_python() {
  local python
  for python in ${PYTHON:-} python3 /usr/bin/python3 python3.11 python3.12 python3.13 python3.14 python3.10; do
    python=$(command -v "$python") || continue
    "$python" - <<'END' 2>/dev/null && echo "$python" && return
import ensurepip, os, sys, sysconfig, venv
sys.exit(sys.version_info < (3, 10) or not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
END
  done
  return 1
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    sudo "$@"
  else
    return 1
  fi
}

install_packages() {
  local log apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=120)
  command -v apt-get >/dev/null || fail "this system has no apt-get: install what Debian calls $*, then run this again"
  say "installing $* (apt-get)"
  log=$(mktemp)
  if ! { as_root "${apt[@]}" update && as_root "${apt[@]}" install --no-install-recommends "$@"; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    rm -f "$log"
    fail "could not install them: run 'apt-get install -y $*' as root, then run this again"
  fi
  rm -f "$log"
}

system() {
  local packages
  packages=$(missing_packages | tr '\n' ' ')
  # shellcheck disable=SC2086 # a list of words
  [ -z "${packages// /}" ] || install_packages $packages
  find_python >/dev/null || fail "no Python >= 3.10 with headers and venv was found: install python3-dev and python3-venv, or say PYTHON=/path/to/python3"
  pkg-config --exists 'grpc >= 29' || fail "gRPC here is older than 1.51, which this needs: use Debian 12, Ubuntu 24.04 or later"
  pkg-config --exists 'libcrypto >= 3' || fail "OpenSSL here is older than 3, which this needs: use Debian 12, Ubuntu 22.04 or later"
}

venv() {
  local stamp=.venv/stamp python want
  want="$(sha256sum requirements.txt | cut -c 1-64) ${PYTHON:-}"
  [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && return
  python=$(find_python)
  if ! .venv/bin/python -c 'import pip' 2>/dev/null || [ -n "${PYTHON:-}" ]; then
    say "making .venv with $python ($("$python" --version 2>&1))"
    "$python" -m venv --clear .venv || fail "$python could not make a virtual environment: apt-get install python3-venv"
  fi
  say "installing requirements.txt into .venv (torch is large: this may take some minutes)"
  .venv/bin/python -m pip install -qq --disable-pip-version-check -r requirements.txt ||
    fail "pip could not install requirements.txt: is the network there? then run this again"
  echo "$PWD/python" >"$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/hivemind_c.pth"
  echo "$want" >"$stamp"
}

browser() {
  local name
  for name in chromium google-chrome chromium-browser; do
    command -v "$name" >/dev/null && return
  done
  install_packages chromium fonts-dejavu-core
}

case "${1:-}" in
system) system ;;
venv) system && venv ;;
browser) browser ;;
*) fail "say which: $0 system | venv | browser" ;;
esac
