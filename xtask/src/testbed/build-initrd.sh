#!/bin/sh
# Makes the initramfs with dracut inside a root, as a distribution would; in a mount namespace of its own.
#   build-initrd.sh ROOT MODULE PROGRAM OUTPUT BARE
# BARE is the same without the witness, for those who append it.
set -eu
root=$1 module=$2 program=$3 output=$4 bare=$5
modules=$root/usr/lib/dracut/modules.d/35kiln-firstboot
mkdir -p "$modules"
mount --bind "$module" "$modules"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/run"
parts="bash systemd systemd-initrd systemd-udevd systemd-journald systemd-modules-load systemd-tmpfiles dracut-systemd"
parts="$parts dbus-daemon dbus network-manager network kernel-modules kernel-network-modules rootfs-block udev-rules"
parts="$parts usrmount base fs-lib shutdown url-lib ignition kiln-firstboot"
cp "$program" "$root/tmp/kiln-firstboot"
KILN_FIRSTBOOT=/tmp/kiln-firstboot chroot "$root" dracut --quiet --force --no-compress --no-hostonly --no-hostonly-cmdline \
    --no-early-microcode --kver "$(ls "$root/lib/modules")" --tmpdir /tmp --conf /dev/null --confdir /tmp \
    --modules "$parts" \
    --drivers "virtio_pci virtio_blk virtio_net virtio_rng bonding 8021q dummy autofs4" --filesystems ext4 /tmp/initrd
cp "$root/tmp/initrd" "$output"
mkdir "$root/tmp/bare"
(cd "$root/tmp/bare" && cpio --extract --make-directories --quiet < ../initrd)
for unit in "$module"/witness/*.service "$module/real-root/kiln-witness.service"; do
    find "$root/tmp/bare/" -name "$(basename "$unit")" -delete
done
(cd "$root/tmp/bare" && find . -print0 | cpio --null --create --format=newc --quiet) > "$bare"
