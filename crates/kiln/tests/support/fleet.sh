#!/bin/sh
# A site of its own: a network namespace with a bridge, a gateway, a name server and room for a hub, and behind the bridge
# nodes, each with its own network, its own /etc, /run and /var/lib, its own system bus and its own real NetworkManager.
# Nothing in it reaches the machine; everything in it ends with it.
#
#   fleet.sh site WORK NODE...    starts it all; WORK must not lie below /run, /etc or /var/lib
#
# Every place (the site and each node) is a shell that runs what it is given: a script WORK/PLACE/script, a line to the FIFO
# WORK/PLACE/ask, and the output and exit code come out of the FIFO WORK/PLACE/answer.
set -eu
role=$1
work=$2

serve_scripts() {
    mkfifo "$work/$1/ask" "$work/$1/answer"
    : > "$work/$1/ready"
    while read -r _ < "$work/$1/ask"; do
        { sh "$work/$1/script" 2>&1 < /dev/null && echo "exit 0" || echo "exit $?"; } > "$work/$1/answer"
    done
}
wait_for() {
    tries=600
    until "$@"; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.05
    done
}

case $role in
site)
    if [ "${KILN_FLEET_INSIDE:-}" != yes ]; then
        KILN_FLEET_INSIDE=yes exec unshare --net --mount --pid --fork --kill-child --mount-proc "$0" "$@"
    fi
    mount --make-rprivate /
    mount -t tmpfs tmpfs /run
    ip link set lo up
    ip link add site type bridge
    ip addr add 10.66.0.1/16 dev site
    ip link set site up
    dnsmasq --no-daemon --conf-file=/dev/null --no-resolv --no-hosts --port=53 --listen-address=10.66.0.1 \
        --bind-interfaces --pid-file= --user=root > "$work/dnsmasq.log" 2>&1 &
    echo $! > "$work/dnsmasq.pid"
    shift 2
    number=10
    for node in "$@"; do
        number=$((number + 1))
        mkdir -p "$work/$node"
        echo "10.66.0.$number" > "$work/$node/address"
        unshare --net --mount "$0" node "$work" "$node" "$number" > "$work/$node/start.log" 2>&1 &
        inside=$!
        # The wire of the node: one end in its namespace, one on the bridge.
        wait_for test -e "$work/$node/namespace"
        ip link add "to-$number" type veth peer name eth0 netns "$inside" address "52:54:00:66:00:$number"
        ip link set "to-$number" master site up
        : > "$work/$node/wired"
    done
    serve_scripts site
    ;;
node)
    node=$3
    number=$4
    mount --make-rprivate /
    : > "$work/$node/namespace"
    mkdir -p "$work/$node/private"
    mount -t tmpfs tmpfs "$work/$node/private"
    for folder in etc lib; do mkdir -p "$work/$node/private/$folder-upper" "$work/$node/private/$folder-work"; done
    mount -t overlay overlay -o "lowerdir=/etc,upperdir=$work/$node/private/etc-upper,workdir=$work/$node/private/etc-work" /etc
    mount -t overlay overlay -o "lowerdir=/var/lib,upperdir=$work/$node/private/lib-upper,workdir=$work/$node/private/lib-work" /var/lib
    mount -t tmpfs tmpfs /run
    mkdir -p /run/dbus /run/NetworkManager /etc/NetworkManager /var/lib/NetworkManager
    mount -t tmpfs tmpfs /etc/NetworkManager
    mount -t tmpfs tmpfs /var/lib/NetworkManager
    mkdir -p /etc/NetworkManager/conf.d /etc/NetworkManager/dispatcher.d /etc/NetworkManager/system-connections
    echo "nameserver 10.66.0.1" > /etc/resolv.conf
    echo "$node" > /etc/hostname
    wait_for test -e "$work/$node/wired"
    ip link set lo up
    ip link set eth0 up
    for nic in eth1 eth2; do
        ip link add "$nic" type veth peer name "$nic-peer"
        ip link set "$nic-peer" up
    done
    cat > /etc/NetworkManager/system-connections/uplink.nmconnection <<PROFILE
[connection]
id=uplink
uuid=66000000-0000-4000-8000-0000000000$number
type=ethernet
interface-name=eth0

[ipv4]
method=manual
address1=10.66.0.$number/16,10.66.0.1
dns=10.66.0.1;

[ipv6]
method=disabled
PROFILE
    chmod 600 /etc/NetworkManager/system-connections/uplink.nmconnection
    # A fresh sysfs shows this network namespace; read-only, because NetworkManager then does not wait for udev.
    mount -t sysfs -o ro sysfs /sys
    cat > /etc/NetworkManager/NetworkManager.conf <<CONF
[main]
plugins=keyfile
dns=default
rc-manager=file
no-auto-default=*
auth-polkit=false
[keyfile]
unmanaged-devices=interface-name:*-peer
[logging]
level=INFO
[connectivity]
enabled=false
CONF
    running() { [ "$(nmcli -g RUNNING general 2>/dev/null)" = running ]; }
    dbus-daemon --system --nofork --nopidfile --nosyslog > /run/dbus.log 2>&1 &
    wait_for test -S /run/dbus/system_bus_socket
    NetworkManager --debug > "$work/$node/networkmanager.log" 2>&1 &
    wait_for running
    connected() { ip -4 route show default | grep -q 10.66.0.1; }
    wait_for connected
    serve_scripts "$node"
    ;;
esac
