//! `kiln agent apply` and `kiln agent recover` beside a real NetworkManager: what is kept, what comes back, what is left alone.
//!
//! Every script compares the whole machine before and after: bytes and modes of the profiles, addresses, routes, ports and
//! what is in force. The machine's eth0 leads to a neighbour in another namespace, which answers pings.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "support/networkmanager.rs"]
mod networkmanager;

use kiln_agent::failpoint::{RETURNING, TRYING};
use kiln_core::keyfile::{ConnectionFile, Keyfile};
use networkmanager::{Machine, Session};

const NICS: [(&str, &str); 3] =
    [("eth0", "52:54:00:00:00:01"), ("eth1", "52:54:00:00:00:02"), ("eth2", "52:54:00:00:00:03")];

/// Profiles as people write them: NetworkManager would write each in another way, so that nobody's rewriting goes unnoticed.
const ETH0: &str = "# by hand\n[connection]\ntype=ethernet\nid=uplink\nuuid=10000000-0000-4000-8000-000000000000\n\
    interface-name=eth0\nautoconnect=true\n\n[ipv4]\nmethod=manual\naddress1=192.0.2.1/24,192.0.2.254\n\n[ipv6]\nmethod=disabled\n";
const OLD: &str = "[connection]\ntype=bridge\nid=old\nuuid=20000000-0000-4000-8000-000000000000\ninterface-name=old0\n\n\
    [bridge]\nstp=false\n\n[ipv4]\nmethod=manual\naddress1=198.18.0.1/24\n\n[ipv6]\nmethod=disabled\n";
const OLD_PORT: &str = "[connection]\ntype=ethernet\nid=old port\nuuid=30000000-0000-4000-8000-000000000000\n\
    interface-name=eth2\nmaster=old0\nslave-type=bridge\n";

/// Documents: `good` changes, makes and removes; `bad` cuts the neighbour off; `bond` is more than this kernel can.
const PRELUDE: &str = r#"
    export LC_ALL=C
    ip netns add neighbour
    ip link set eth0-peer netns neighbour
    ip -n neighbour addr add 192.0.2.254/24 dev eth0-peer
    ip -n neighbour link set eth0-peer up
    ip -n neighbour link set lo up
    cat > /run/good.yml <<DOCUMENT
interfaces:
- name: eth0
  type: ethernet
  state: up
  ipv4: {enabled: true, dhcp: false, address: [{ip: 192.0.2.7, prefix-length: 24}]}
- name: br0
  type: linux-bridge
  state: up
  ipv4: {enabled: true, dhcp: false, address: [{ip: 198.51.100.1, prefix-length: 24}]}
  ipv6: {enabled: false}
  bridge: {options: {stp: {enabled: false}}, port: [{name: eth1}]}
- {name: old0, type: linux-bridge, state: absent}
routes:
  config:
  - {destination: 0.0.0.0/0, next-hop-address: 192.0.2.254, next-hop-interface: eth0}
  - {destination: 203.0.113.0/24, next-hop-address: 192.0.2.254, next-hop-interface: eth0}
DOCUMENT
    sed 's/192.0.2.7/100.64.0.7/; /^routes/,$d' /run/good.yml > /run/bad.yml
    cat > /run/bond.yml <<DOCUMENT
interfaces:
- name: bond0
  type: bond
  state: up
  link-aggregation: {mode: active-backup, port: [eth1]}
  ipv4: {enabled: true, dhcp: false, address: [{ip: 198.51.100.1, prefix-length: 24}]}
DOCUMENT
    apply() { document=$1; shift; "$KILN" agent apply "/run/$document.yml" --state-dir /run/kiln -o json "$@"; }
    recover() { "$KILN" agent recover --state-dir /run/kiln; }
    profiles() {
        for file in /etc/NetworkManager/system-connections/* /run/NetworkManager/system-connections/*; do
            # NetworkManager's own notes about what others made
            case $file in */lo.nm*|*/cni0.nm*|*/other*|*'*') ;; *) echo "$file $(stat -c %a "$file") $(md5sum < "$file")" ;; esac
        done
    }
    machine() {
        profiles
        ip -o addr show | awk '$3 != "inet6" {print $2, $4}' | grep -v -e ^cni0 -e ^other | sort
        # NetworkManager numbers the metrics of profiles that have none in the order they come up.
        ip route | grep -v -e cni0 -e other | sed 's/ metric [0-9]*//' | sort
        ip -o link show | sed -n 's/^[0-9]*: \([^@:]*\).* master \([^ ]*\) .*/\1 in \2/p' | sort
        nmcli -g UUID,DEVICE,STATE connection show --active | grep -v -e :lo: -e :cni0: -e :other | sort
        ls /run/kiln/journal.json 2>/dev/null
    }
    # same WHAT: the machine is what it was, or becomes so within thirty seconds: NetworkManager waits for links of a bridge's ports
    same() {
        tries=300
        until [ "$(machine)" = "$before" ] || [ $tries = 0 ]; do tries=$((tries - 1)); sleep 0.1; done
        machine > /run/after
        if [ "$(cat /run/after)" = "$before" ]; then echo "$1: same"; else echo "$1: differs"; echo "$before" | diff - /run/after; fi
    }
    steady() { for address in 192.0.2.1 198.18.0.1; do until ip -o addr show | grep -q " $address/"; do sleep 0.05; done; done
        until ip -o link show eth2 | grep -q 'master old0' && ! nmcli -g STATE connection show --active | grep -q activating; do sleep 0.05; done; }
    steady
    before=$(machine)
"#;

/// What belongs to others: a profile of its own bridge, one for a NIC of Kiln's, and a bridge made without NetworkManager.
const STRANGERS: &str = r#"
    ip link add cni0 type bridge; ip addr add 10.88.0.1/16 dev cni0; ip link set cni0 up
    nmcli connection add type bridge ifname other0 con-name other bridge.stp no ipv4.method manual ipv4.addresses 10.99.0.1/24 ipv6.method disabled > /dev/null
    nmcli connection add type ethernet ifname eth0 con-name other-eth0 autoconnect no ipv4.method auto > /dev/null
    until ip -o addr show | grep -q ' 10.99.0.1/24' && nmcli -g NAME connection show --active | grep -qx cni0; do sleep 0.05; done
    strangers() {
        # with their numbers: one that was made anew has another
        for bridge in cni0 other0; do ip -o link show $bridge | sed 's/ state .*//'; ip -o -4 addr show $bridge | awk '{print $2, $4}'; done
        for file in /etc/NetworkManager/system-connections/other*; do echo "$file $(stat -c '%a %i' "$file") $(md5sum < "$file")"; done
        nmcli -g NAME,UUID,DEVICE connection show | grep -e ^other -e ^cni0 | sort
    }
    strangers_before=$(strangers)
    untouched() { [ "$(strangers)" = "$strangers_before" ] || { echo "$1: strangers differ"; echo "$strangers_before"; echo ---; strangers; }; }
"#;

fn run(test: &str, script: &str) -> Option<Session> {
    run_script(test, &[PRELUDE, script].concat())
}

fn run_script(test: &str, script: &str) -> Option<Session> {
    let file = |name: &str, text: &str, mode| ConnectionFile {
        mode,
        ..ConnectionFile::new(format!("{name}.nmconnection"), Keyfile::parse(text).unwrap())
    };
    let files = [file("uplink", ETH0, 0o400), file("old", OLD, 0o600), file("old port", OLD_PORT, 0o600)];
    let kiln = format!("KILN='{}'\n", env!("CARGO_BIN_EXE_kiln"));
    Machine { nics: &NICS, files: &files, last_active: &[] }.run(test, &[&kiln, script, "\nexit 0\n"].concat())
}

fn expect(test: &str, script: &str, expected: &[&str]) {
    if let Some(session) = run(test, script) {
        assert_eq!(session.output.lines().collect::<Vec<_>>(), expected, "{test}\n{}", session.log);
    }
}

#[test]
fn a_change_that_is_proved_is_kept_and_the_same_again_sends_nothing() {
    expect(
        "a_change_that_is_proved_is_kept_and_the_same_again_sends_nothing",
        r#"
        apply good --probe gateway --probe ping:192.0.2.254 --soak 300ms > /run/out; echo "exit $?"
        grep -o '"outcome": "[a-zA-Z]*"' /run/out
        ip -o -4 addr show | awk '$2 != "lo" {print $2, $4}' | sort
        ip route | grep via | sed 's/ metric [0-9]*//; s/ *$//' | sort
        ip -o link show eth1 | grep -o 'master [a-z0-9]*'
        stat -c '%a %n' /etc/NetworkManager/system-connections/* | sort
        ls /run/kiln
        stdbuf -oL dbus-monitor --system "type='method_call'" >> /run/calls 2>/dev/null &
        monitor=$!
        until grep -aq member= /run/calls; do sleep 0.05; busctl --system list > /dev/null; done
        sleep 0.2
        : > /run/calls
        apply good --soak 0 > /run/out; echo "exit $?"
        grep -o '"outcome": "[a-zA-Z]*"' /run/out
        sleep 0.5
        kill $monitor
        grep -a 'destination=org.freedesktop.NetworkManager' /run/calls | grep -o 'member=[A-Za-z]*' | sort -u
        "#,
        &[
            "exit 0",
            r#""outcome": "applied""#,
            "br0 198.51.100.1/24",
            "eth0 192.0.2.7/24",
            "203.0.113.0/24 via 192.0.2.254 dev eth0 proto static",
            "default via 192.0.2.254 dev eth0 proto static",
            "master br0",
            "600 /etc/NetworkManager/system-connections/br0.nmconnection",
            "600 /etc/NetworkManager/system-connections/eth1.nmconnection",
            "600 /etc/NetworkManager/system-connections/old port.nmconnection",
            "600 /etc/NetworkManager/system-connections/uplink.nmconnection",
            "lock",
            "memory.json",
            "exit 0",
            r#""outcome": "unchanged""#,
        ],
    );
}

#[test]
fn a_probe_that_fails_puts_everything_back_and_leaves_strangers_alone() {
    expect(
        "a_probe_that_fails_puts_everything_back_and_leaves_strangers_alone",
        r#"
        {
            sleep 1
            ip link add cni0 type bridge; ip addr add 10.88.0.1/16 dev cni0; ip link set cni0 up
            nmcli connection add type bridge ifname other0 con-name other ipv4.method manual ipv4.addresses 10.99.0.1/24 ipv6.method disabled > /dev/null
        } &
        apply bad --probe ping:192.0.2.254 --timeout 3s > /run/out; echo "exit $?"
        grep -o -e '"outcome": "[a-zA-Z]*"' -e '"reason": ".*"' /run/out
        took=$(sed -n 's/.*"tookMilliseconds": \([0-9]*\).*/\1/p' /run/out)
        [ "$took" -lt 5000 ] && echo "back in time" || cat /run/out
        wait
        same "a failed probe"
        ip -o -4 addr show dev cni0 | grep -o '10.88.0.1/16'
        ip -o -4 addr show dev other0 | grep -o '10.99.0.1/24'
        ls /etc/NetworkManager/system-connections/other.nmconnection
        "#,
        &[
            "exit 1",
            r#""outcome": "rolledBack""#,
            r#""reason": "ping 192.0.2.254 did not answer within 3000 ms of the change""#,
            "back in time",
            "a failed probe: same",
            "10.88.0.1/16",
            "10.99.0.1/24",
            "/etc/NetworkManager/system-connections/other.nmconnection",
        ],
    );
}

#[test]
fn what_this_kernel_cannot_make_fails_at_once() {
    expect(
        "what_this_kernel_cannot_make_fails_at_once",
        r#"
        # Where the kernel can, another hopeless document takes the place.
        if ip link add test type bond 2>/dev/null; then ip link del test; sed -i 's/bond0/this-name-is-too-long/' /run/bond.yml; fi
        begin=$(date +%s)
        apply bond > /run/out 2>&1; echo "exit $?"
        end=$(date +%s)
        [ $((end - begin)) -lt 5 ] && echo "at once" || echo "after $((end - begin)) s"
        same "a hopeless change"
        "#,
        &["exit 1", "at once", "a hopeless change: same"],
    );
}

#[test]
fn an_agent_that_dies_at_any_step_leaves_a_journal_that_brings_the_old_network_back() {
    // Of what is numbered the first and the second.
    let numbered = |step: &str| match step {
        "file" | "stage" => vec![format!("{step}-0"), format!("{step}-1")],
        step => vec![step.to_owned()],
    };
    let steps: Vec<String> = TRYING.iter().flat_map(|step| numbered(step)).collect();
    let (recovered, returning) = RETURNING.split_last().unwrap();
    let script = format!(
        r#"
        cat >> /run/good.yml <<DOCUMENT
hostname: {{config: after}}
DOCUMENT
        # What stands on a bridge is a stage of its own.
        sed -i 's/^- name: br0$/- {{name: vx5, type: vxlan, state: up, vxlan: {{base-iface: br0, id: 5, remote: 198.51.100.9, destination-port: 4789}}, ipv4: {{enabled: false}}, ipv6: {{enabled: false}}}}\n- name: br0/' /run/good.yml
        echo before > /proc/sys/kernel/hostname
        printf 'before' > /etc/hostname
        names() {{ [ "$(cat /etc/hostname) $(cat /proc/sys/kernel/hostname)" = "before before" ] || echo "$1: $(cat /etc/hostname) $(cat /proc/sys/kernel/hostname)"; }}
        checkpoints() {{ busctl --json=short get-property org.freedesktop.NetworkManager /org/freedesktop/NetworkManager org.freedesktop.NetworkManager Checkpoints; }}
        whole() {{ same "$1"; untouched "$1"; names "$1"; [ "$(checkpoints)" = '{{"type":"ao","data":[]}}' ] || echo "$1: $(checkpoints)"; }}
        for step in {}; do
            KILN_AGENT_DIE_AT=$step apply good --soak 0 > /run/out 2>&1; [ $? = 134 ] || {{ echo "$step was not reached"; cat /run/out; }}
            [ -e /run/kiln/journal.json ] || echo "$step: no journal"
            recover > /dev/null; whole "$step"
        done
        for step in {}; do
            KILN_AGENT_DIE_AT=$step apply bad --probe ping:192.0.2.254 --timeout 300ms > /run/out 2>&1; [ $? = 134 ] || {{ echo "$step was not reached"; cat /run/out; }}
            # the one who recovers is killed as well, at the same step (the first is none of his) and at the last
            KILN_AGENT_DIE_AT=$step recover > /dev/null 2>&1
            KILN_AGENT_DIE_AT={recovered} recover > /dev/null 2>&1; [ $? = 134 ] || [ $step = failed ] || echo "{recovered} was not reached after $step"
            recover > /dev/null; whole "$step"
        done
        "#,
        steps.join(" "),
        returning.join(" ")
    );
    let returning = returning.iter().map(|step| (*step).to_owned());
    let expected: Vec<String> = steps.iter().cloned().chain(returning).map(|step| format!("{step}: same")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    let test = "an_agent_that_dies_at_any_step_leaves_a_journal_that_brings_the_old_network_back";
    // In a namespace of its own for names, so that this machine keeps its own.
    let inside = [PRELUDE, STRANGERS, &script].concat();
    let outside =
        format!("export KILN\ncat > /run/all.sh <<'END OF ALL'\n{inside}\nEND OF ALL\nunshare --uts sh /run/all.sh\n");
    if let Some(session) = run_script(test, &outside) {
        assert_eq!(session.output.lines().collect::<Vec<_>>(), expected, "{test}\n{}", session.log);
    }
}

#[test]
fn a_checkpoint_of_another_program_is_waited_for() {
    expect(
        "a_checkpoint_of_another_program_is_waited_for",
        r#"
        busctl call org.freedesktop.NetworkManager /org/freedesktop/NetworkManager org.freedesktop.NetworkManager CheckpointCreate aouu 0 3 0 > /dev/null
        begin=$(date +%s)
        apply good --soak 0 > /run/out 2> /run/said; echo "exit $?"
        [ $(($(date +%s) - begin)) -ge 2 ] && echo "waited"
        grep -o '"outcome": "[a-zA-Z]*"' /run/out
        sed 's/checkpoint [0-9]*/checkpoint N/' /run/said
        "#,
        &[
            "exit 0",
            "waited",
            r#""outcome": "applied""#,
            "waiting up to 30 s: checkpoint N of another program is pending in NetworkManager, for 3 s at most; \
             `nmstatectl commit` or `rollback` ends it now",
        ],
    );
}

#[test]
fn another_profile_of_the_user_for_the_same_nic_is_left_alone() {
    expect(
        "another_profile_of_the_user_for_the_same_nic_is_left_alone",
        &[
            STRANGERS,
            r#"
            apply good --soak 0 > /run/out; echo "exit $?"; untouched "the first"
            sed -i 's/192.0.2.7/192.0.2.8/' /run/good.yml
            apply good --soak 0 > /run/out; echo "exit $?"; untouched "an edit"
            # Somebody takes the other profile into force, and it is put right.
            nmcli connection modify other-eth0 ipv4.method manual ipv4.addresses 203.0.113.7/24
            strangers_before=$(strangers | sed 's/:eth0$/:/')
            nmcli connection up other-eth0 > /dev/null
            apply good --soak 0 > /run/out; echo "exit $?"; untouched "a repair"
            ip -o -4 addr show dev eth0 | awk '{print $4}'
            "#,
        ]
        .concat(),
        &["exit 0", "exit 0", "exit 0", "192.0.2.8/24"],
    );
}

#[test]
fn networkmanager_goes_back_by_itself_when_the_agent_is_dead() {
    expect(
        "networkmanager_goes_back_by_itself_when_the_agent_is_dead",
        r#"
        KILN_AGENT_DIE_AT=proved apply good --soak 0 --checkpoint 2s > /dev/null 2>&1
        ip -o addr show dev eth0 | grep -o '192.0.2.7/24'
        tries=80
        until ip -o addr show dev eth0 | grep -q '192.0.2.1/24' && ip -o addr show | grep -q '198.18.0.1/24' || [ $tries = 0 ]; do
            tries=$((tries - 1)); sleep 0.1
        done
        ip -o -4 addr show | awk '$2 == "eth0" || $2 == "old0" {print $2, $4}' | sort
        # What its checkpoint does not cover is the journal's.
        recover
        same "the checkpoint and the journal"
        recover
        "#,
        &[
            "192.0.2.7/24",
            "eth0 192.0.2.1/24",
            "old0 198.18.0.1/24",
            "put back what was before /run/good.yml: the agent ended before the try was confirmed",
            "the checkpoint and the journal: same",
            "nothing to recover",
        ],
    );
}

#[test]
fn after_a_power_cut_the_files_are_back_before_networkmanager_starts() {
    expect(
        "after_a_power_cut_the_files_are_back_before_networkmanager_starts",
        r#"
        files=$(profiles)
        KILN_AGENT_DIE_AT=verified apply good --soak 0 > /dev/null 2>&1
        [ "$(profiles)" = "$files" ] && echo "nothing was written"
        nm=$(pidof NetworkManager); kill -9 "$nm"
        while [ -e "/proc/$nm" ]; do sleep 0.05; done
        # Another boot: another id, and an empty /run of NetworkManager.
        sed -i 's/"boot": "[^"]*"/"boot": "an earlier one"/' /run/kiln/journal.json
        rm -rf /run/NetworkManager/system-connections
        KILN_AGENT_DIE_AT=restored-files recover > /dev/null 2>&1
        ls /run/kiln/journal.json
        recover
        [ "$(profiles)" = "$(echo "$files" | grep /etc/)" ] && echo "as before"
        ls /run/kiln
        "#,
        &[
            "/run/kiln/journal.json",
            "put back what was before /run/good.yml: the machine stopped before the try was confirmed",
            "as before",
            "lock",
            "memory.json",
        ],
    );
}

#[test]
fn a_hostname_comes_back_with_the_rest() {
    expect(
        "a_hostname_comes_back_with_the_rest",
        r#"
        # In a namespace of its own, so that this machine keeps its name.
        cat > /run/hostname.sh <<'SCRIPT'
        echo before > /proc/sys/kernel/hostname
        printf 'before' > /etc/hostname
        chmod 640 /etc/hostname
        names() { echo "$(cat /etc/hostname) $(stat -c %a /etc/hostname) $(cat /proc/sys/kernel/hostname)"; }
        "$KILN" agent apply /run/bad.yml --state-dir /run/kiln --probe ping:192.0.2.254 --timeout 300ms > /run/out 2>&1
        grep -o 'hostname: before -> after' /run/out
        names
        KILN_AGENT_DIE_AT=stages "$KILN" agent apply /run/good.yml --state-dir /run/kiln > /run/out 2>&1
        names
        "$KILN" agent recover --state-dir /run/kiln > /dev/null
        names
        "$KILN" agent apply /run/good.yml --state-dir /run/kiln --soak 0 > /run/out 2>&1
        names
SCRIPT
        for document in good bad; do printf 'hostname: {config: after}\n' >> /run/$document.yml; done
        export KILN
        unshare --uts sh /run/hostname.sh
        "#,
        &["hostname: before -> after", "before 640 before", "after 644 after", "before 640 before", "after 644 after"],
    );
}

#[test]
fn a_gateway_that_answers_no_echo_is_asked_as_a_neighbour() {
    expect(
        "a_gateway_that_answers_no_echo_is_asked_as_a_neighbour",
        r#"
        ip netns exec neighbour sh -c 'echo 1 > /proc/sys/net/ipv4/icmp_echo_ignore_all'
        # It counts, since it passed before: a change that keeps it is kept, one that loses it is not.
        apply good --probe gateway --timeout 3s --soak 300ms > /run/out; echo "exit $?"
        grep -o -e '"outcome": "[a-zA-Z]*"' /run/out
        sed 's/192.0.2.7/192.0.2.8/' /run/good.yml > /run/silent.yml
        { sleep 2; ip -n neighbour link set eth0-peer arp off; ip -n neighbour addr flush dev eth0-peer; } &
        apply silent --probe gateway --timeout 2s --soak 4s > /run/out; echo "exit $?"
        grep -o -e '"outcome": "[a-zA-Z]*"' -e '"reason": "the default gateway' /run/out
        wait
        "#,
        &[
            "exit 0",
            r#""outcome": "applied""#,
            "exit 1",
            r#""outcome": "rolledBack""#,
            r#""reason": "the default gateway"#,
        ],
    );
}

#[test]
fn a_target_that_is_named_counts_also_when_only_the_new_network_reaches_it() {
    expect(
        "a_target_that_is_named_counts_also_when_only_the_new_network_reaches_it",
        r#"
        ip -n neighbour addr add 100.64.0.254/24 dev eth0-peer
        # It knows no way to the old network.
        ip -n neighbour rule add from 100.64.0.254 to 192.0.2.0/24 blackhole
        apply good --probe ping:100.64.0.254 --probe gateway --timeout 1s > /run/out; echo "exit $?"
        grep -o -e '"outcome": "[a-zA-Z]*"' -e '"reason": ".*"' /run/out
        same "not reached"
        # The name server answers neither before nor after, and whoever reads the outcome is told.
        apply bad --probe ping:100.64.0.254 --probe dns --soak 300ms > /run/out; echo "exit $?"
        grep -o -e '"outcome": "[a-zA-Z]*"' -e '"DNS"' /run/out
        "#,
        &[
            "exit 1",
            r#""outcome": "rolledBack""#,
            r#""reason": "ping 100.64.0.254 did not answer within 1000 ms of the change""#,
            "not reached: same",
            "exit 0",
            r#""outcome": "applied""#,
            r#""DNS""#,
        ],
    );
}

#[test]
fn a_gateway_that_answered_by_both_families_must_go_on_with_both() {
    expect(
        "a_gateway_that_answered_by_both_families_must_go_on_with_both",
        r#"
        ip netns exec neighbour sh -c 'echo 0 > /proc/sys/net/ipv6/conf/eth0-peer/accept_dad'
        ip -n neighbour addr add 2001:db8::254/64 dev eth0-peer nodad
        nmcli connection modify uplink ipv6.method manual ipv6.addresses 2001:db8::1/64 ipv6.gateway 2001:db8::254
        nmcli connection up uplink > /dev/null
        until ip -o -6 addr show dev eth0 | grep '2001:db8::1/64' | grep -vq tentative; do sleep 0.1; done
        # The address of one family goes where nobody answers.
        cat > /run/six.yml <<DOCUMENT
interfaces:
- {name: eth0, type: ethernet, state: up, ipv6: {enabled: true, dhcp: false, autoconf: false, address: [{ip: 2001:db8:9::7, prefix-length: 64}]}}
routes: {config: [{destination: "::/0", next-hop-address: "2001:db8:9::254", next-hop-interface: eth0}]}
DOCUMENT
        apply six --probe gateway --timeout 2s --soak 300ms > /run/out; echo "exit $?"
        grep -o -e '"outcome": "[a-zA-Z]*"' -e '"reason": ".*"' /run/out
        # Silent from the beginning, IPv4 takes no time from IPv6, and one is enough.
        ip netns exec neighbour sh -c 'echo 1 > /proc/sys/net/ipv4/icmp_echo_ignore_all'
        ip -n neighbour addr del 192.0.2.254/24 dev eth0-peer; ip neigh flush dev eth0
        sed 's/2001:db8:9::7/2001:db8::7/; s/2001:db8:9::254/2001:db8::254/' /run/six.yml > /run/right.yml
        until ip -o -6 addr show dev eth0 | grep '2001:db8::1/64' | grep -vq tentative; do sleep 0.1; done
        apply right --probe gateway --timeout 6s --soak 300ms > /run/out; echo "exit $?"
        grep -o -e '"outcome": "[a-zA-Z]*"' -e '"reason": ".*"' -e '"the default gateway"' /run/out
        "#,
        &[
            "exit 1",
            r#""outcome": "rolledBack""#,
            r#""reason": "the default gateway did not answer within 2000 ms of the change""#,
            "exit 0",
            r#""outcome": "applied""#,
        ],
    );
}
