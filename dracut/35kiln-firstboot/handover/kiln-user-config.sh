#!/bin/sh
# Where an installer leaves the config, and where Ignition looks for it. It holds a token: nobody else reads it.
set -eu
umask 077
mkdir -p /run/kiln/boot /usr/lib/ignition
mount -o ro /dev/disk/by-label/boot /run/kiln/boot
if [ -e /run/kiln/boot/ignition/config.ign ]; then
    cp /run/kiln/boot/ignition/config.ign /usr/lib/ignition/user.ign
    echo "the boot partition's ignition/config.ign is the user config"
else
    echo "the boot partition has no ignition/config.ign"
fi
