#!/bin/sh
# A CoreOS image whose first boot knows the bond and the VLAN: as one file, and from a store for many hosts.
# usage: examples/bond-vlan/image.sh IMAGE.qcow2.gz, in an empty folder
set -eu
image=$1
network=$(dirname "$0")/network.yaml

# one file, with the line for install-config.yaml
kiln image customize "$image" -o bonding.qcow2.gz --network "$network" --url http://10.0.11.30:8080
kiln image network bonding.qcow2.gz list

# back to the original bytes
kiln image reset bonding.qcow2.gz -o original.qcow2.gz
cmp "$image" original.qcow2.gz

# one base, many hosts; `kiln image serve --store store` serves them
kiln image import "$image" --store store
for host in worker-1 worker-2; do
    kiln image compose --store store --base rhcos --host "$host" --network "$network" --url http://10.0.11.30:8080 -o "$host.qcow2.gz"
done
