#!/usr/bin/env bash
# Installs what is missing to build, test and run hivemind_c, and nothing else: system packages by apt, Python packages into .venv.
#   scripts/setup.sh system   a compiler, gRPC, protobuf-c, OpenSSL, xxHash, cmocka, and a Python >= 3.10 with its headers
#   scripts/setup.sh venv     .venv with requirements.txt (and the system packages first)
#   scripts/setup.sh browser  chromium, for the tests of the monitor's page
# When nothing is missing both are done in a moment. PYTHON=/path/to/python3 chooses the Python of .venv.
set -euo pipefail
cd "$(dirname "$0")/.."

VENV_MB=2500 # .venv with the CPU build of torch
TEMPORARY_MB=1000 # a download of pip, unpacked

say() { echo "setup: $*" >&2; }
fail() { say "$*"; exit 1; }

# fail_as LOG TASK FALLBACK: one sentence with the cause that the log names; if it names none, its last lines and the fallback.
fail_as() {
  local cause
  cause=$(explain "$1")
  [ -n "$cause" ] || tail -n 5 "$1" >&2
  rm -f "$1"
  fail "$2: ${cause:-$3}"
}

# The cause that a log names and its remedy; nothing if it names none.
explain() {
  if grep -qE 'No space left on device|not have enough free space' "$1"; then
    echo "the disk is full; free some space, then run this again"
  elif grep -qE 'Read-only file system' "$1"; then
    echo "the file system is read-only; work in a folder that can be written"
  elif grep -qE '[Ff]ailure resolving|name resolution|NameResolutionError|NewConnectionError|ConnectTimeout|Network is unreachable|Could not resolve|Could not connect' "$1"; then
    echo "the network does not answer; connect this machine (behind a proxy, set HTTPS_PROXY), then run this again"
  fi
}

# The folder, or the nearest one above it that exists.
existing() {
  local folder=$1
  until [ -d "$folder" ]; do folder=$(dirname "$folder"); done
  echo "$folder"
}

# check_room FOLDER MB TASK ADVICE: fails if it cannot be written or has less space.
check_room() {
  local free
  [ -w "$1" ] || fail "$3: the folder $1 cannot be written; $4"
  free=$(df -Pm "$1" | awk 'NR == 2 { print $4 }')
  [ "$free" -ge "$2" ] || fail "$3: the disk of $1 has $free MB free of the $2 MB that this takes; free some space, or $4"
}

# What must be there, each with the Debian package that brings it.
missing_packages() {
  local tool library
  for tool in cc:build-essential make:make pkg-config:pkg-config protoc-c:protobuf-c-compiler ip:iproute2 nft:nftables unshare:util-linux; do
    PATH=$PATH:/usr/sbin:/sbin command -v "${tool%%:*}" >/dev/null || echo "${tool#*:}"
  done
  for library in grpc:libgrpc-dev libprotobuf-c:libprotobuf-c-dev libcrypto:libssl-dev libxxhash:libxxhash-dev cmocka:libcmocka-dev; do
    pkg-config --exists "${library%%:*}" 2>/dev/null || echo "${library#*:}"
  done
  [ -e /usr/include/miniupnpc/miniupnpc.h ] || echo libminiupnpc-dev
  [ -e /usr/include/natpmp.h ] || echo libnatpmp-dev
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
  log=$(mktemp) || fail "could not install $*: ${TMPDIR:-/tmp} cannot be written; set TMPDIR to another folder"
  if ! { as_root "${apt[@]}" -o APT::Update::Error-Mode=any update && as_root "${apt[@]}" install --no-install-recommends "$@"; } >"$log" 2>&1; then
    fail_as "$log" "could not install $*" "apt-get failed; run 'apt-get install -y $*' as root, then run this again"
  fi
  rm -f "$log"
}

system() {
  local packages
  packages=$(missing_packages | xargs)
  # shellcheck disable=SC2086 # a list of words
  [ -z "$packages" ] || install_packages $packages
  find_python >/dev/null || fail "no Python >= 3.10 with headers and venv was found: install python3-dev and python3-venv, or say PYTHON=/path/to/python3"
  pkg-config --exists 'grpc >= 29' || fail "gRPC here is older than 1.51, which this needs: use Debian 12, Ubuntu 24.04 or later"
  pkg-config --exists 'libcrypto >= 3' || fail "OpenSSL here is older than 3, which this needs: use Debian 12, Ubuntu 22.04 or later"
}

venv() {
  local stamp=.venv/stamp python want log task="could not make .venv"
  want="$(sha256sum requirements.txt | cut -c 1-64) ${PYTHON:-}"
  [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && return
  check_room . 0 "$task" "clone the repository to a folder that can be written"
  check_room "${TMPDIR:-/tmp}" 1 "$task" "set TMPDIR to a folder on another disk"
  log=$(mktemp)
  python=$(find_python)
  if ! .venv/bin/python -c 'import pip' 2>/dev/null || [ -n "${PYTHON:-}" ]; then
    check_room . $VENV_MB "$task" "clone the repository to another disk"
    say "making .venv with $python ($("$python" --version 2>&1))"
    { "$python" -m venv --clear --without-pip .venv && .venv/bin/python -m ensurepip --default-pip; } >"$log" 2>&1 || # apart: venv hides errors of the second
      fail_as "$log" "$task" "$python could not make it; run apt-get install python3-venv"
  fi
  download "$log"
  echo "$PWD/python" >"$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/hivemind_c.pth"
  echo "$want" >"$stamp"
  rm -f "$log"
}

# Installs requirements.txt into .venv; before a large download it looks whether there is a network, and room.
download() {
  local log=$1 cache task="could not install requirements.txt" pip=(.venv/bin/python -m pip -q --disable-pip-version-check)
  if ! "${pip[@]}" install --no-index --dry-run -r requirements.txt >"$log" 2>&1; then # something is missing here
    check_room "${TMPDIR:-/tmp}" $TEMPORARY_MB "$task" "set TMPDIR to a folder on another disk"
    cache=$(.venv/bin/python -m pip cache dir 2>/dev/null) || cache=
    [ -z "$cache" ] || [ -w "$(existing "$cache")" ] ||
      say "pip keeps no downloads: its cache $cache cannot be written; set PIP_CACHE_DIR to a folder that can be, or download again each time"
    "${pip[@]}" --no-cache-dir --retries 1 --timeout 20 install --dry-run --no-deps "$(grep -m 1 '^msgpack' requirements.txt)" >"$log" 2>&1 ||
      fail_as "$log" "$task" "pip cannot reach its package index; set PIP_INDEX_URL to one that answers, then run this again"
  fi
  say "installing requirements.txt into .venv (torch is large: this may take some minutes)"
  "${pip[@]}" -q install -r requirements.txt 2>"$log" || fail_as "$log" "$task" "pip failed; look at the lines above, then run this again"
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
