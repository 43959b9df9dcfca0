#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# setup.sh GROUP...: installs the Debian packages of the groups build, test and bench that are
# missing; costs one dpkg-query when none is. VERBENA_SETUP=off leaves the machine as it is.
set -eu

build="gcc libc6-dev cmake ninja-build pkg-config libibverbs-dev librdmacm-dev
    libisal-dev libmicrohttpd-dev"
test="libcmocka-dev clang clang-format lld libclang-rt-dev tshark tcpdump python3 python3-scapy
    qemu-system-x86 busybox-static cpio ethtool iproute2 nftables mandoc valgrind binutils
    ibverbs-utils perftest rdmacm-utils infiniband-diags iperf3 python3-prometheus-client
    gnuplot-nox"
bench="iperf3 gnuplot-nox ucx-utils perftest rdmacm-utils valgrind python3"

wanted=
for group in "$@"; do
    case $group in
    build) wanted="$wanted $build" ;;
    test) wanted="$wanted $test" ;;
    bench) wanted="$wanted $bench" ;;
    *)
        echo "setup.sh: unknown group '$group'; one of build, test, bench" >&2
        exit 2
        ;;
    esac
done

# Other distributions name their packages differently: there CMake says what it misses.
if [ "${VERBENA_SETUP:-}" = off ] || ! command -v dpkg-query >/dev/null; then
    exit 0
fi

# shellcheck disable=SC2086 # lists of package names
installed=$(dpkg-query -W -f='=${db:Status-Status} ${Package}=\n' $wanted 2>/dev/null || true)
missing=
for package in $wanted; do
    case $installed in
    *"=installed $package="*) ;;
    *) missing="$missing $package" ;;
    esac
done
if [ -z "$missing" ]; then
    exit 0
fi

install="apt-get install --yes --no-install-recommends$missing"
if [ "$(id -u)" -eq 0 ]; then
    sudo=
elif sudo -n true 2>/dev/null; then
    sudo="sudo -n"
else
    echo "setup: packages are missing; as root: $install" >&2
    exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt()
{
    # shellcheck disable=SC2086 # empty or two words
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 \
        -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 </dev/null
}

echo "setup: installing$missing"
# A stale or partly failing index may still be good enough; the installation decides.
apt update || true
# shellcheck disable=SC2086 # a list of package names
if ! apt install --yes --no-install-recommends $missing; then
    cat "$log" >&2
    echo "setup: could not install packages; as root: apt-get update && $install" >&2
    exit 1
fi
echo "setup: done"
