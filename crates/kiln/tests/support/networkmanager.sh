#!/bin/sh
# Runs a script beside a real NetworkManager in a world of its own: private network, mount and process namespaces,
# own /run, /etc and /var/lib/NetworkManager, own system bus. Nothing in it reaches the machine; everything in it ends with it.
#
#   networkmanager.sh WORK_DIR NIC=MAC ... < script
#
# WORK_DIR/system-connections is copied to /etc with its modes, WORK_DIR/timestamps to /var/lib/NetworkManager.
# Every NIC is one end of a veth pair whose other end (NAME-peer) is up, so that it has a carrier.
# The log of NetworkManager is left in WORK_DIR/log. Exit code: the script's, or 99 when NetworkManager did not start.
set -eu
if [ "${KILN_TEST_INSIDE:-}" != yes ]; then
    KILN_TEST_INSIDE=yes exec unshare --net --mount --pid --fork --kill-child --mount-proc "$0" "$@"
fi
work=$1
shift
mount --make-rprivate /
mkdir "$work/overlay"
mount -t tmpfs tmpfs "$work/overlay"
mkdir "$work/overlay/upper" "$work/overlay/work"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$work/overlay/upper,workdir=$work/overlay/work" /etc
case $work in /run/*) echo "the work directory must not lie below /run" >&2; exit 99 ;; esac
mount -t tmpfs tmpfs /run
mkdir -p /run/dbus /run/NetworkManager /etc/NetworkManager /var/lib/NetworkManager
mount -t tmpfs tmpfs /etc/NetworkManager
mount -t tmpfs tmpfs /var/lib/NetworkManager
mkdir -p /etc/NetworkManager/conf.d /etc/NetworkManager/dispatcher.d
cp -a "$work/system-connections" /etc/NetworkManager/
chown -R 0:0 /etc/NetworkManager/system-connections
[ ! -e "$work/timestamps" ] || cp "$work/timestamps" /var/lib/NetworkManager/timestamps
# A fresh sysfs shows this network namespace; read-only, because NetworkManager then does not wait for udev.
mount -t sysfs -o ro sysfs /sys
cat > /etc/NetworkManager/NetworkManager.conf <<CONF
[main]
plugins=keyfile
dns=none
rc-manager=unmanaged
no-auto-default=*
auth-polkit=false
[keyfile]
unmanaged-devices=interface-name:*-peer
[logging]
level=INFO
[connectivity]
enabled=false
CONF
ip link set lo up
for nic in "$@"; do
    name=${nic%%=*}
    ip link add "$name" address "${nic#*=}" type veth peer name "$name-peer"
    ip link set "$name-peer" up
done

wait_for() {
    tries=600
    until "$@"; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.05
    done
}
running() { [ "$(nmcli -g RUNNING general 2>/dev/null)" = running ]; }

dbus-daemon --system --nofork --nopidfile --nosyslog > /run/dbus.log 2>&1 &
wait_for test -S /run/dbus/system_bus_socket || { cat /run/dbus.log >&2; exit 99; }
NetworkManager --debug > "$work/log" 2>&1 &
wait_for running || { cat "$work/log" >&2; exit 99; }
set +e
sh -s
exit $?
