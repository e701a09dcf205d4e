#!/bin/sh
# Asks dracut for the network and makes NetworkManager's profiles again, now that one is needed.
# Without a word about networking on the command line it is CoreOS's `ip=auto`.
mkdir -p /etc/cmdline.d
default=ip=auto
read -r arguments < /proc/cmdline
for argument in $arguments; do
    case $argument in ip=* | vlan=* | bond=* | bridge=* | team=* | nameserver=* | rd.route=* | rd.znet=*) default='' ;; esac
done
echo "rd.neednet=1 $default" > /etc/cmdline.d/50-kiln-network.conf
. /lib/nm-lib.sh
nm_generate_connections
