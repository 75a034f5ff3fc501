#!/bin/sh
# Do the tests of the network pass on a newer gRPC core than this system's? `make test-grpc` calls this; scripts/newer_grpc.sh [SUITE]
# Takes the gRPC of scripts/build_grpc.py, which is built if it is missing (13 minutes, once). If a SUITE of Debian is named, it fetches
# that suite's libgrpc and all it needs, down to libc, by apt with lists of its own; unpacks it all under
# csrc/build/newer and runs the tests there with that loader. Nothing is installed, nothing of the system changes. Needs Debian or
# Ubuntu with Debian's keyring, and what `make test` installs.
set -e
export GRPC_VERBOSITY=NONE # it would tell of each refused connection
suite=$1
cd "$(dirname "$0")/../csrc"
net="loop lanes door outage listen net_hostile net_memory net_siege"
tests=${TESTS:-"contract/test_contract_real $(for one in $net; do echo unit/net/transport/test_$one; done) unit/net/hive/test_hive unit/net/hive/test_hive_dht unit/net/hive/test_hive_state unit/net/hive/test_hive_attacks"}
if [ -z "$suite" ]; then
  ../.venv/bin/python ../scripts/build_grpc.py --aside
  PKG_CONFIG_PATH=$(ls -d "$PWD"/../.grpc/[0-9]*/lib/pkgconfig 2>/dev/null | tail -n 1):$PKG_CONFIG_PATH
  export PKG_CONFIG_PATH
  make -s MODE=own OPT_own="-O2 -g" $(for one in $tests; do echo "build/own/tests/$one"; done)
  for one in $tests; do
    echo "== $one"
    "build/own/tests/$one"
  done
  exit
fi
here=$PWD/build/newer/$suite
root=$here/root
libs=$root/usr/lib/$(gcc -print-multiarch)
keys=/usr/share/keyrings/debian-archive-keyring.gpg

if [ ! -e "$here/ready" ]; then
  test -e $keys || { echo "newer_grpc: no $keys: apt-get install debian-archive-keyring"; exit 2; }
  mkdir -p "$here/parts" "$here/lists/partial" "$here/cache/archives/partial" "$root" "$here/include" "$here/link"
  for one in "$suite" sid; do
    printf 'Types: deb\nURIs: http://deb.debian.org/debian\nSuites: %s\nComponents: main\nSigned-By: %s\n' "$one" $keys > "$here/parts/$one.sources"
  done
  apt="apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$here/parts -o Dir::State::lists=$here/lists -o Dir::Cache=$here/cache -o Dir::State::status=/dev/null -o Debug::NoLocking=1"
  $apt update
  $apt -t "$suite" -d -y --no-install-recommends install libgrpc-dev libstdc++6 libgcc-s1 > /dev/null
  for package in "$here"/cache/archives/*.deb; do dpkg -x "$package" "$root"; done
  cp -r "$root/usr/include/grpc" "$here/include/"
  for lib in grpc gpr; do ln -sf "$libs/lib$lib.so" "$here/link/lib$lib.so"; done
  touch "$here/ready"
fi

basename "$here"/cache/archives/libgrpc-dev_*.deb
make -s MODE=newer OPT_newer="-O2 -g" FOREIGN="-isystem $here/include $(pkg-config --cflags libprotobuf-c libcrypto libxxhash)" \
  LIBS="-L$here/link -Wl,--allow-shlib-undefined -lgrpc -lgpr -lprotobuf-c -lxxhash -lssl -lcrypto -lm -pthread" \
  $(for one in $tests; do echo "build/newer/tests/$one"; done)
for one in $tests; do
  echo "== $one"
  "$libs"/ld-linux-x86-64.so.2 --library-path "$libs:/usr/lib/$(gcc -print-multiarch)" "build/newer/tests/$one"
done
