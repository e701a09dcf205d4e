#!/bin/bash
# The first boot as CoreOS has it, for distributions that have Ignition and NetworkManager but none of CoreOS's scripts,
# and a witness that reports it. Needs the static program: KILN_FIRSTBOOT=FILE, else /usr/bin/kiln-firstboot.
#
#   witness/    units that only report; nothing is ordered after them
#   handover/   user config, network, hand-over to the real root
#   real-root/  what the initramfs leaves in /run for the system it starts

check() {
    # Only when it is asked for by name: a distribution may have scripts of its own.
    return 255
}

depends() {
    echo systemd network-manager ignition
}

installkernel() {
    # Whatever a host's network can be made of.
    hostonly='' instmods bonding 8021q bridge dummy macvlan vxlan
}

# kiln_unit FOLDER UNIT TARGET WORD: installs a unit that TARGET requires or wants.
kiln_unit() {
    inst_simple "$moddir/$1/$2" "$systemdsystemunitdir/$2"
    mkdir -p "$initdir/$systemdsystemunitdir/$3.$4"
    ln_r "$systemdsystemunitdir/$2" "$systemdsystemunitdir/$3.$4/$2"
}

install() {
    inst_simple "${KILN_FIRSTBOOT:-/usr/bin/kiln-firstboot}" /usr/bin/kiln-firstboot
    inst_multiple cp ln mkdir mount rm sync

    kiln_unit witness kiln-stay.service ignition-complete.target wants
    kiln_unit witness kiln-report-network.service ignition-complete.target wants
    kiln_unit witness kiln-report-leaving.service ignition-complete.target wants
    kiln_unit witness kiln-report-failed.service emergency.target wants
    inst_simple "$moddir/real-root/kiln-witness.service" /usr/lib/kiln/real-root/kiln-witness.service

    for script in kiln-user-config kiln-enable-network kiln-hand-over; do
        inst_script "$moddir/handover/$script.sh" "/usr/sbin/$script"
    done
    for unit in kiln-user-config kiln-enable-network kiln-copy-network kiln-hand-over; do
        kiln_unit handover "$unit.service" ignition-complete.target requires
    done
    inst_simple "$moddir/handover/ignition-files.conf" "$systemdsystemunitdir/ignition-files.service.d/10-kiln.conf"
    inst_simple "$moddir/real-root/kiln-firstboot-complete.service" /usr/lib/kiln/real-root/kiln-firstboot-complete.service

    # Ignition labels what it wrote, always. Where there is no SELinux there is nothing to label.
    if ! find_binary setfiles > /dev/null; then
        inst_script "$moddir/handover/setfiles.sh" /usr/sbin/setfiles
    fi
}
