#!/bin/sh
# The network profiles go to the real root by the policy of `kiln.firstboot=stock|force|merge`; then, and not before,
# they leave the boot partition: after a power cut on the way the next boot finds them and does it all again.
set -eu
# An emergency stops units too. Then nothing is handed over, and the network stays for whoever looks after the machine.
[ -e /run/kiln/ignition-done ] || exit 0
/usr/bin/kiln-firstboot propagate
mkdir -p /run/kiln/boot
mount -o rw /dev/disk/by-label/boot /run/kiln/boot
rm -rf /run/kiln/boot/coreos-firstboot-network
# The real root ends the first boot only if this one did all that.
ln -s ../kiln-firstboot-complete.service /run/systemd/system/multi-user.target.wants/kiln-firstboot-complete.service
