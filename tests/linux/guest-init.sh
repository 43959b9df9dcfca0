#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# First process of the guest: loads soft-RoCE, brings up eth0 and rxe0, then serves guest.py's jobs.
#
# Channel: lines on the second serial port. From the host: "run N", "kill PGID", "halt".
# To the host: "ready", "failed WHY", "started N PGID", "done N STATUS".
# A job's script is /job/N.sh and its output /job/N.out, in a folder shared with the host by 9p.

export PATH=/usr/sbin:/usr/bin:/sbin:/bin

give_up() {
    echo "failed $*" >&3
    poweroff -f
}

set_up_system() {
    mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t devtmpfs dev /dev || return
    mkdir -p /dev/shm /job /run /tmp
    stty -F /dev/ttyS1 raw -echo
    exec 3<>/dev/ttyS1
}

load_modules() {
    while read -r module; do
        insmod "/lib/modules/$module" || echo "guest: $module not loaded"
    done </lib/modules/order
}

# vb_mtu comes from the kernel's command line.
set_up_network() {
    echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
    ip link set lo up &&
        ip link set eth0 mtu "${vb_mtu:-1500}" up &&
        ip address add 10.77.0.2/24 dev eth0 &&
        ip address add fd77::2/64 dev eth0 nodad &&
        rdma link add rxe0 type rxe netdev eth0
}

# Full paths: by its bare name, setsid would run the shell built into busybox.
run_job() {
    setsid /bin/sh -c 'echo "started $0 $$" >&3; exec /bin/sh "/job/$0.sh" 3>&-' "$1" \
        </dev/null >"/job/$1.out" 2>&1
    echo "done $1 $?" >&3
}

serve_jobs() {
    echo ready >&3
    while read -r verb argument <&3; do
        case $verb in
        run) run_job "$argument" & ;;
        kill) kill -KILL "-$argument" ;;
        halt) poweroff -f ;;
        esac
    done
}

set_up_system || poweroff -f
load_modules
mount -t 9p -o trans=virtio,version=9p2000.L,cache=none job /job || give_up "no job folder"
set_up_network || give_up "no rxe0"
serve_jobs
poweroff -f
