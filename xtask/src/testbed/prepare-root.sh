#!/bin/sh
# Makes a root like CoreOS's of Debian's: no identity, no network of its own, nothing that asks, nothing slow.
#   prepare-root.sh ROOT
set -eu
root=$1
rm -f "$root/etc/hostname" "$root/var/lib/dbus/machine-id" "$root/etc/resolv.conf" "$root"/etc/NetworkManager/system-connections/*
echo uninitialized > "$root/etc/machine-id"
mkdir -p "$root/etc/sysconfig/network-scripts" "$root/etc/selinux"
# Ignition wants to label what it writes and reads here how.
echo SELINUXTYPE=none > "$root/etc/selinux/config"
printf 'LABEL=root / ext4 defaults 0 0\nLABEL=boot /boot ext4 ro 0 0\n' > "$root/etc/fstab"
cat > "$root/etc/NetworkManager/NetworkManager.conf" << CONF
[main]
plugins=keyfile
no-auto-default=*
dns=none
rc-manager=unmanaged
[connectivity]
enabled=false
CONF
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root/usr/share/i18n" "$root/usr/share/zoneinfo"
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
    fstrim.timer getty@tty1.service serial-getty@ttyS0.service systemd-pstore.service NetworkManager-dispatcher.service \
    systemd-firstboot.service systemd-hwdb-update.service systemd-machine-id-commit.service \
    systemd-update-utmp.service systemd-update-utmp-runlevel.service ldconfig.service systemd-logind.service \
    systemd-user-sessions.service systemd-random-seed.service systemd-sysusers.service systemd-tmpfiles-clean.timer \
    dracut-shutdown.service modprobe@drm.service modprobe@efi_pstore.service modprobe@fuse.service \
    modprobe@configfs.service sys-kernel-debug.mount sys-kernel-tracing.mount dev-hugepages.mount dev-mqueue.mount; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
# The test asks over the second serial line what the machine has become, and lets it end.
cat > "$root/usr/local/sbin/answer" << 'ANSWER'
#!/bin/sh
exec < /dev/ttyS1 > /dev/ttyS1
stty raw -echo
echo ready
while read -r question; do
    echo "begin"
    sh -c "$question" 2>&1
    echo "end $?"
done
ANSWER
chmod 755 "$root/usr/local/sbin/answer"
cat > "$root/etc/systemd/system/answer.service" << 'UNIT'
[Unit]
Description=Answer the test
[Service]
Type=exec
ExecStart=/usr/local/sbin/answer
UNIT
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -s ../answer.service "$root/etc/systemd/system/multi-user.target.wants/answer.service"
