//! A config's profiles, planned and tried beside a real NetworkManager: what comes up, what stays up, what comes back.
//!
//! Each test runs twice: outside it starts a machine of its own and a script, and the script runs the test again inside,
//! which asks NetworkManager, plans and tries. Both talk in lines that begin with `> `.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails loudly; a script reads what it prints")]

#[path = "../../kiln/tests/support/networkmanager.rs"]
mod networkmanager;

use std::fs;
use std::path::Path;

use kiln_agent::{Agent, Outcome};
use kiln_core::assignment::{Probe, Proof};
use kiln_core::change::{Change, Ownership, Step, plan_change, plan_profile_files};
use kiln_core::keyfile::{ConnectionFile, Keyfile};
use kiln_core::machine::wish::ProfileWish;
use networkmanager::Machine;
use serde_json::{Value, json};

const NICS: [(&str, &str); 3] =
    [("eth0", "52:54:00:00:00:01"), ("eth1", "52:54:00:00:00:02"), ("eth2", "52:54:00:00:00:03")];

/// Profiles as people write them. The last one is in no config and must not be touched.
const UPLINK: &str = "# by hand\n[connection]\ntype=ethernet\nid=uplink\nuuid=10000000-0000-4000-8000-000000000000\n\
    interface-name=eth0\nautoconnect=true\n\n[ipv4]\nmethod=manual\naddress1=192.0.2.1/24,192.0.2.254\n\n[ipv6]\nmethod=disabled\n";
const STORAGE: &str = "[connection]\ntype=ethernet\nid=storage\nuuid=20000000-0000-4000-8000-000000000000\n\n\
    [ethernet]\nmac-address=52:54:00:00:00:02\n\n[ipv4]\nmethod=manual\naddress1=198.18.0.1/24\n\n[ipv6]\nmethod=disabled\n";
const STRANGER: &str = "# not Kiln's\n[connection]\ntype=ethernet\nid=stranger\nuuid=30000000-0000-4000-8000-000000000000\n\
    interface-name=eth2\n\n[ipv4]\nmethod=manual\naddress1=203.0.113.2/24\n\n[ipv6]\nmethod=disabled\n";

/// `wish NAME` is a config with the two profiles of the machine, to be edited; `try_profiles NAME [GONE…]` goes for it.
const PRELUDE: &str = r#"
    export LC_ALL=C
    ip netns add neighbour
    ip link set eth0-peer netns neighbour
    ip -n neighbour addr add 192.0.2.254/24 dev eth0-peer
    ip -n neighbour link set eth0-peer up
    FOLDER=/etc/NetworkManager/system-connections
    wish() { mkdir "/run/$1"; cp -p $FOLDER/uplink.nmconnection $FOLDER/storage.nmconnection "/run/$1"; }
    again() { KILN_TEST_INSIDE_REQUEST="$*" "$SELF" --exact "$TEST" --nocapture > /run/said 2>&1; grep '^> ' /run/said || cat /run/said; }
    try_profiles() { again profiles "$@"; }
    addresses() { ip -o -4 addr show | awk '$2 != "lo" {print $2, $4}' | sort; }
    files() { for file in $FOLDER/*; do echo "$file $(stat -c %a "$file") $(md5sum < "$file")"; done; }
    links() { for nic in eth0 eth1 eth2; do echo "$nic $(cat /sys/class/net/$nic/carrier_changes)"; done; }
    stranger() { files | grep stranger; cat /sys/class/net/eth2/carrier_changes; nmcli -g GENERAL.CON-PATH device show eth2; }
    steady() { for address in 192.0.2.1 198.18.0.1 203.0.113.2; do until ip -o addr show | grep -q " $address/"; do sleep 0.05; done; done
        while nmcli -g STATE connection show --active | grep -q activating; do sleep 0.05; done; }
    within() { tries=100; until eval "$1" || [ $tries = 0 ]; do tries=$((tries - 1)); sleep 0.1; done; [ $tries != 0 ] || echo "never: $1"; }
    steady
    before_stranger=$(stranger)
"#;

const END: &str = r#"
    [ "$(stranger)" = "$before_stranger" ] && echo "the stranger is untouched" || { echo "$before_stranger"; stranger; }
    exit 0
"#;

/// Runs a test in both places.
fn expect(test: &str, script: &str, expected: &[&str]) {
    if let Ok(request) = std::env::var("KILN_TEST_INSIDE_REQUEST") {
        return inside(&request.split_whitespace().collect::<Vec<_>>());
    }
    let file = |name: &str, text: &str, mode| ConnectionFile {
        mode,
        ..ConnectionFile::new(format!("{name}.nmconnection"), Keyfile::parse(text).unwrap())
    };
    let files = [file("uplink", UPLINK, 0o400), file("storage", STORAGE, 0o600), file("stranger", STRANGER, 0o600)];
    let this = std::env::current_exe().unwrap();
    let head = format!("SELF='{}'\nTEST={test}\n", this.display());
    let machine = Machine { nics: &NICS, files: &files, last_active: &[] };
    let Some(session) = machine.run(test, &[&head, PRELUDE, script, END].concat()) else { return };
    let expected: Vec<&str> = expected.iter().copied().chain(["the stranger is untouched"]).collect();
    assert_eq!(session.output.lines().collect::<Vec<_>>(), expected, "{test}\n{}", session.log);
}

/// Observes, plans, tries, and remembers what is Kiln's, as the agent does.
#[tokio::main]
async fn inside(request: &[&str]) {
    let agent = Agent::connect(Path::new("/run/kiln")).await.unwrap();
    let observed = agent.observe().await.unwrap();
    let read = |path: &str| fs::read(path).ok().map(|text| serde_json::from_slice::<Value>(&text).unwrap());
    let owned: Ownership = read("/run/owned").map(|it| serde_json::from_value(it).unwrap()).unwrap_or_default();
    let policy = read("/run/policy").unwrap_or_else(|| json!({}));
    let planned = match request {
        ["policy"] => plan_change(&observed, &owned, &policy, &policy),
        ["profiles", name, gone @ ..] => {
            let wish = read_wish(&format!("/run/{name}"), gone);
            plan_profile_files(&observed, &owned, Some((&policy, &policy)), &wish)
        }
        other => panic!("{other:?}"),
    };
    let change = planned.unwrap();
    let proof = Proof { probes: vec![Probe::Ping("192.0.2.254".into())], within: 3000, soak: 300, ..Proof::default() };
    let outcome = match agent.attempt(&change, &proof, "test", None).await.unwrap() {
        Outcome::Applied { .. } => {
            fs::write("/run/owned", serde_json::to_string(&change.ownership).unwrap()).unwrap();
            "applied".to_owned()
        }
        Outcome::RolledBack { why, .. } => format!("put back: {why}"),
        Outcome::Refused { why } => format!("refused: {why}"),
        Outcome::Waits { why } | Outcome::Abandoned { why, .. } => format!("nothing learned: {why}"),
    };
    println!("\n> {}: {outcome}", described(&change));
}

fn read_wish(folder: &str, gone: &[&str]) -> ProfileWish {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let read = |name: String| {
        let keyfile = Keyfile::parse_bytes(&fs::read(Path::new(folder).join(&name)).unwrap()).unwrap();
        ConnectionFile::new(name, keyfile)
    };
    let gone = gone.iter().map(|name| format!("{name}.nmconnection")).collect();
    ProfileWish { files: names.into_iter().map(read).collect(), gone }
}

fn described(change: &Change) -> String {
    let step = |step: &Step| match step {
        Step::Activate { interface, .. } => format!("activate {interface}"),
        Step::Reapply { interface, .. } => format!("reapply {interface}"),
        Step::Remove { interface } => format!("remove {interface}"),
    };
    let stage = |stage: &Vec<Step>| stage.iter().map(step).collect::<Vec<_>>().join(" + ");
    let stages: Vec<String> = change.stages.iter().map(stage).collect();
    let files = match change.writes.len() {
        1 => "1 file".to_owned(),
        many => format!("{many} files"),
    };
    if change.is_empty() { "nothing".to_owned() } else { format!("{files}, {}", stages.join(", ")) }
}

#[test]
fn a_new_device_comes_up_and_an_address_changes_without_the_link_going_down() {
    expect(
        "a_new_device_comes_up_and_an_address_changes_without_the_link_going_down",
        r#"
        wish same; try_profiles same never-there
        wish new
        sed -i 's/192.0.2.1\//192.0.2.7\//' /run/new/uplink.nmconnection
        sed -i 's/198.18.0.1\//198.18.0.7\//' /run/new/storage.nmconnection
        # A dummy where the kernel has one, else a bridge: for NetworkManager both are devices that a profile makes.
        if ip link add probe type dummy 2>/dev/null; then ip link del probe; kind=dummy; else kind=bridge; fi
        printf '[connection]\nid=lab\nuuid=40000000-0000-4000-8000-000000000000\ntype=%s\ninterface-name=lab0\n\n[ipv4]\nmethod=manual\naddress1=100.64.0.1/24\n\n[ipv6]\nmethod=disabled\n' $kind > /run/new/lab.nmconnection
        before=$(links)
        try_profiles new
        addresses
        ip route | grep -o '^default via [0-9.]*'
        [ "$(links)" = "$before" ] && echo "no link went down"
        for file in uplink storage lab; do cmp /run/new/$file.nmconnection $FOLDER/$file.nmconnection; done
        stat -c '%a %n' $FOLDER/*
        try_profiles new
        # It goes again, and so does its device; the rest stays.
        rm /run/new/lab.nmconnection
        try_profiles new lab
        within '! ip link show lab0 > /dev/null 2>&1'
        ls $FOLDER
        addresses
        "#,
        &[
            "> nothing: applied",
            "> 3 files, reapply eth0 + reapply eth1 + activate lab0: applied",
            "eth0 192.0.2.7/24",
            "eth1 198.18.0.7/24",
            "eth2 203.0.113.2/24",
            "lab0 100.64.0.1/24",
            "default via 192.0.2.254",
            "no link went down",
            "600 /etc/NetworkManager/system-connections/lab.nmconnection",
            "600 /etc/NetworkManager/system-connections/storage.nmconnection",
            "600 /etc/NetworkManager/system-connections/stranger.nmconnection",
            "600 /etc/NetworkManager/system-connections/uplink.nmconnection",
            "> nothing: applied",
            "> 1 file, remove lab0: applied",
            "storage.nmconnection",
            "stranger.nmconnection",
            "uplink.nmconnection",
            "eth0 192.0.2.7/24",
            "eth1 198.18.0.7/24",
            "eth2 203.0.113.2/24",
        ],
    );
}

#[test]
fn profiles_that_lose_the_gateway_are_put_back_byte_for_byte() {
    expect(
        "profiles_that_lose_the_gateway_are_put_back_byte_for_byte",
        r#"
        wish bad
        chmod u+w /run/bad/*
        sed -i 's/192.0.2.1\/24,192.0.2.254/100.64.0.7\/24/' /run/bad/uplink.nmconnection
        printf '[connection]\nid=lab\nuuid=40000000-0000-4000-8000-000000000000\ntype=bridge\ninterface-name=lab0\n\n[ipv4]\nmethod=manual\naddress1=100.64.1.1/24\n\n[ipv6]\nmethod=disabled\n' > /run/bad/lab.nmconnection
        rm /run/bad/storage.nmconnection
        before=$(files); before_addresses=$(addresses)
        try_profiles bad storage
        within '[ "$(addresses)" = "$before_addresses" ]'
        [ "$(files)" = "$before" ] && echo "the files are the same" || files
        nmcli -g NAME,DEVICE connection show --active | grep -v :lo | sort
        "#,
        &[
            "> 3 files, reapply eth0 + remove eth1 + activate lab0: put back: ping 192.0.2.254 did not answer within 3000 ms of the change",
            "the files are the same",
            "storage:eth1",
            "stranger:eth2",
            "uplink:eth0",
        ],
    );
}

#[test]
fn a_nic_becomes_a_port_and_is_its_own_again() {
    expect(
        "a_nic_becomes_a_port_and_is_its_own_again",
        r#"
        wish bridge
        rm /run/bridge/storage.nmconnection
        printf '[connection]\nid=br1\nuuid=50000000-0000-4000-8000-000000000000\ntype=bridge\ninterface-name=br1\n\n[bridge]\nstp=false\n\n[ipv4]\nmethod=manual\naddress1=198.18.0.1/24\n\n[ipv6]\nmethod=disabled\n' > /run/bridge/br1.nmconnection
        printf '[connection]\nid=port\nuuid=60000000-0000-4000-8000-000000000000\ntype=ethernet\ninterface-name=eth1\nmaster=br1\nslave-type=bridge\n' > /run/bridge/port.nmconnection
        wish alone
        port() { ip -o link show eth1 | grep -o 'master [a-z0-9]*' || echo "no port"; }
        try_profiles bridge storage
        within '[ "$(port)" = "master br1" ]'
        addresses
        # Its profile changes, and its port stays or comes back.
        printf '[connection]\nid=br1\nuuid=50000000-0000-4000-8000-000000000000\ntype=bridge\ninterface-name=br1\n\n[bridge]\nstp=true\nforward-delay=2\n\n[ipv4]\nmethod=manual\naddress1=198.18.0.2/24\n\n[ipv6]\nmethod=disabled\n' > /run/bridge/br1.nmconnection
        try_profiles bridge
        within '[ "$(port)" = "master br1" ]'
        addresses
        try_profiles alone br1 port
        within '! ip link show br1 > /dev/null 2>&1'
        port
        addresses
        try_profiles alone br1 port
        "#,
        &[
            "> 3 files, activate br1, activate eth1: applied",
            "br1 198.18.0.1/24",
            "eth0 192.0.2.1/24",
            "eth2 203.0.113.2/24",
            "> 1 file, activate br1: applied",
            "br1 198.18.0.2/24",
            "eth0 192.0.2.1/24",
            "eth2 203.0.113.2/24",
            "> 3 files, remove br1 + activate eth1: applied",
            "no port",
            "eth0 192.0.2.1/24",
            "eth1 198.18.0.1/24",
            "eth2 203.0.113.2/24",
            "> nothing: applied",
        ],
    );
}

#[test]
fn a_policy_stays_over_a_new_profile_which_it_leaves_behind() {
    expect(
        "a_policy_stays_over_a_new_profile_which_it_leaves_behind",
        r#"
        mtu() { echo "eth1 $(ip -o link show eth1 | grep -o 'mtu [0-9]*') $(ip -o -4 addr show eth1 | awk '{print $4}')"; }
        echo '{"interfaces": [{"name": "eth1", "type": "ethernet", "state": "up", "mtu": 1400}]}' > /run/policy
        again policy; mtu
        # While the policy is there, its file is not the config's; the config has not changed.
        wish new
        printf '%s' "$STORAGE" > /run/new/storage.nmconnection
        try_profiles new
        sed -i 's/198.18.0.1/198.18.0.9/' /run/new/storage.nmconnection
        try_profiles new; mtu
        try_profiles new
        rm /run/policy
        again policy; mtu
        cmp /run/new/storage.nmconnection $FOLDER/storage.nmconnection
        try_profiles new
        "#
        .replace("\"$STORAGE\"", &format!("'{STORAGE}'"))
        .as_str(),
        &[
            // The profile knew the NIC by its address only, and now by its name too.
            "> 1 file, activate eth1: applied",
            "eth1 mtu 1400 198.18.0.1/24",
            "> nothing: applied",
            "> 1 file, reapply eth1: applied",
            "eth1 mtu 1400 198.18.0.9/24",
            "> nothing: applied",
            "> 1 file, activate eth1: applied",
            "eth1 mtu 1500 198.18.0.9/24",
            "> nothing: applied",
        ],
    );
}
