//! Changes of a folder that stands for a machine, with stand-ins for `systemctl` and `rpm-ostree`.
//!
//! The stand-ins are simulated: shell scripts that note what they are asked, keep the states of units in files, and let a service
//! live as long as its configuration does not say `bad`. Real ones are asked in the virtual machine of `day2_vm`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kiln_core::machine::plan::{drifted, plan_machine};
use kiln_core::machine::wish::{FileWish, Machine, MachineChange, UnitWish};
use kiln_core::machine::{Action, FileRule, MachinePhase, Needs, Rules, System, UnitRule};

use super::drift::Watch;
use super::execute::{execute, reboot};
use super::plan::{Plan, plan_files};
use super::resume::{Resumed, When, confirm, resume, save};
use super::{Ended, Root, Site, journal, observe};
use crate::memory::{MachineMemory, Memory, Store};

const SYSTEMCTL: &str = r#"#!/bin/sh
# Simulated: no systemd is asked.
root=ROOT
echo "systemctl $*" >> "$root/simulated/log"
verb=$1
shift
[ "$1" = -- ] && shift
case $verb in
is-enabled)
  code=0
  for unit; do
    if [ -f "$root/simulated/$unit" ]; then cat "$root/simulated/$unit"
    elif [ -f "$root/etc/systemd/system/$unit" ]; then echo disabled; code=1
    else echo "Failed to get unit file state for $unit: No such file or directory" >&2; exit 1; fi
  done
  exit $code ;;
enable) echo enabled > "$root/simulated/$1" ;;
disable) rm -f "$root/simulated/$1" ;;
mask) echo masked > "$root/simulated/$1" ;;
unmask) rm -f "$root/simulated/$1" ;;
restart | is-active)
  if grep -qs bad "$root/etc/app.conf"; then
    [ $verb = restart ] && exit 0
    echo failed; exit 3
  fi
  [ $verb = restart ] || echo active ;;
reboot) [ ! -e "$root/simulated/never-boots" ] || { echo "Operation refused" >&2; exit 1; } ;;
esac
"#;

const RPM_OSTREE: &str = r#"#!/bin/sh
# Simulated: no deployment is made.
root=ROOT
echo "rpm-ostree $*" >> "$root/simulated/log"
case $1 in
status) echo '{"deployments": [{"booted": true, "container-image-reference": "ostree-unverified-registry:'$(cat "$root/simulated/image")'"}]}' ;;
esac
"#;

/// A machine below a folder of its own, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = Folder(std::env::temp_dir().join(format!("kiln-machine-{name}-{}", std::process::id())));
        let _ = fs::remove_dir_all(&folder.0);
        for (path, text) in [
            ("proc/cmdline", "BOOT_IMAGE=/vmlinuz quiet\n"),
            ("proc/sys/kernel/random/boot_id", "first\n"),
            ("simulated/image", "quay.io/os@sha256:1"),
            ("etc/passwd", "root:x:0:0::/root:/bin/sh\n"),
            ("etc/app.conf", "good\n"),
            ("etc/gone.conf", "goes\n"),
            ("etc/systemd/system/old.service", "[Service]\nExecStart=true\n"),
            ("simulated/old.service", "enabled\n"),
        ] {
            folder.write(path, text);
        }
        folder.set_mode("etc/app.conf", 0o600);
        for (path, script) in [("usr/bin/systemctl", SYSTEMCTL), ("usr/bin/rpm-ostree", RPM_OSTREE)] {
            folder.write(path, &script.replace("ROOT", &folder.0.display().to_string()));
            folder.set_mode(path, 0o755);
        }
        folder
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn set_mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.0.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn root(&self) -> Root {
        Root::new(&self.0)
    }

    fn state(&self) -> PathBuf {
        self.0.join("var/lib/kiln/agent")
    }

    /// Everything below `/etc` and the states of units.
    fn tree(&self) -> BTreeMap<String, String> {
        fn walk(folder: &Path, all: &mut BTreeMap<String, String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let metadata = fs::symlink_metadata(&path).unwrap();
                let shown = match fs::read(&path) {
                    _ if metadata.is_symlink() => fs::read_link(&path).unwrap().display().to_string(),
                    Ok(bytes) => String::from_utf8(bytes).unwrap(),
                    Err(_) => "folder".to_owned(),
                };
                all.insert(path.display().to_string(), format!("{:o} {shown}", metadata.mode()));
                if metadata.is_dir() {
                    walk(&path, all);
                }
            }
        }
        let mut all = BTreeMap::new();
        walk(&self.0.join("etc"), &mut all);
        walk(&self.0.join("simulated"), &mut all);
        all.retain(|path, _| !path.ends_with("/log"));
        all
    }

    /// What the stand-ins were asked to do, and no questions.
    fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.join("simulated/log")).unwrap_or_default();
        let questions = ["is-enabled", "is-active", "status"];
        let asked = text.lines().filter(|line| !questions.iter().any(|question| line.contains(question)));
        asked.map(str::to_owned).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn file(text: &str, mode: u32) -> FileWish {
    FileWish { bytes: text.into(), mode, user: None, group: None }
}

/// What the machine has had applied.
fn before() -> Machine {
    let unit =
        UnitWish { enabled: Some(true), contents: Some("[Service]\nExecStart=true\n".into()), ..UnitWish::default() };
    Machine {
        files: [("/etc/app.conf", "good\n", 0o600), ("/etc/gone.conf", "goes\n", 0o644)]
            .map(|(path, text, mode)| (path.to_owned(), file(text, mode)))
            .into(),
        units: [("old.service".to_owned(), unit)].into(),
        ..Machine::default()
    }
}

/// A file changes, one comes, one goes; so do units.
fn wanted(text: &str) -> Machine {
    let unit = UnitWish { enabled: Some(true), contents: Some("[Service]\n".into()), ..UnitWish::default() };
    Machine {
        files: [("/etc/app.conf", text, 0o640), ("/etc/new/deep/key", "secret\n", 0o600)]
            .map(|(path, text, mode)| (path.to_owned(), file(text, mode)))
            .into(),
        units: [("new.service".to_owned(), unit)].into(),
        ..Machine::default()
    }
}

/// Nothing needs a reboot, and the service of the file is started anew.
fn rules() -> Rules {
    let file = |path: &str, actions: Vec<Action>| FileRule { path: path.into(), actions };
    let unit = |name: &str| UnitRule { name: name.into(), actions: vec![Action::None] };
    Rules {
        files: vec![
            file("/etc", vec![Action::None]),
            file("/etc/app.conf", vec![Action::Restart("app.service".into())]),
        ],
        units: vec![unit("old.service"), unit("new.service")],
    }
}

struct Done {
    plan: Plan,
    ended: Ended,
}

/// Plans, remembers and carries out, as the agent does.
async fn change(folder: &Folder, wanted: &Machine, rules: &Rules, memory: &mut MachineMemory) -> Done {
    let (root, state) = (folder.root(), folder.state());
    let (_, change) = plan_files(&root, memory, wanted, rules).await.unwrap();
    let plan = Plan { change: change.unwrap(), ..Plan::default() };
    let store = Store::open(&state).unwrap();
    memory.pending = Some(plan.pending("r2", wanted));
    save(&store, memory).unwrap();
    let site = Site { root: &root, state_dir: &state };
    let ended = execute(&site, &plan.change, "r2", None).await.unwrap();
    if let Ended::Applied { .. } = ended {
        confirm(&state, &store, &mut Memory::default(), memory).unwrap();
    }
    Done { plan, ended }
}

fn applied() -> MachineMemory {
    MachineMemory { applied: Some(("r1".into(), before())), ..MachineMemory::default() }
}

async fn resumed(folder: &Folder, when: When) -> Resumed {
    let (root, state) = (folder.root(), folder.state());
    let store = Store::open(&state).unwrap();
    let mut memory = store.load_machine().unwrap();
    let site = Site { root: &root, state_dir: &state };
    resume(&site, &store, &mut Memory::default(), &mut memory, None, when).await.unwrap()
}

#[tokio::test]
async fn files_and_units_are_written_verified_and_put_into_force() {
    let folder = Folder::new("written");
    let mut memory = applied();
    let Done { plan, ended } = change(&folder, &wanted("better\n"), &rules(), &mut memory).await;
    assert!(matches!(ended, Ended::Applied { .. }), "{ended:?}");
    assert_eq!(
        folder.log(),
        [
            "systemctl disable -- old.service",
            "systemctl daemon-reload",
            "systemctl enable -- new.service",
            "systemctl preset -- old.service",
            "systemctl restart -- app.service",
        ]
    );
    assert_eq!(plan.needs(), Needs::Service);
    let tree = folder.tree();
    let at = |path: &str| tree.get(&folder.0.join(path).display().to_string()).map(String::as_str);
    assert_eq!(at("etc/app.conf"), Some("100640 better\n"));
    assert_eq!(at("etc/new"), Some("40755 folder"));
    assert_eq!(at("etc/new/deep/key"), Some("100600 secret\n"));
    assert_eq!(at("etc/gone.conf"), None);
    assert_eq!(at("etc/systemd/system/old.service"), None);
    assert_eq!(at("simulated/new.service"), Some("100644 enabled\n"));
    assert_eq!(memory.applied.as_ref().map(|(revision, _)| revision.as_str()), Some("r2"));
    assert_eq!(journal::read(&folder.state()).unwrap(), None);
    // Nothing is left to do, and nothing has drifted.
    let (found, again) = plan_files(&folder.root(), &memory, &wanted("better\n"), &rules()).await.unwrap();
    assert!(again.unwrap().is_empty());
    assert_eq!(drifted(&wanted("better\n"), &found), Vec::<String>::new());
}

#[tokio::test]
async fn a_service_that_does_not_live_with_its_new_file_puts_everything_back() {
    let folder = Folder::new("restart");
    let tree = folder.tree();
    let mut memory = applied();
    let Done { plan, ended } = change(&folder, &wanted("bad secret\n"), &rules(), &mut memory).await;
    let Ended::RolledBack { why, network, .. } = ended else { panic!("{ended:?}") };
    assert_eq!(
        why,
        "systemctl: `app.service` is failed after it was started anew; `journalctl -u app.service` says why"
    );
    assert!(!network);
    assert_eq!(folder.tree(), tree);
    assert_eq!(folder.log().last().map(String::as_str), Some("systemctl restart -- app.service"));
    assert_eq!(journal::read(&folder.state()).unwrap(), None);
    let shown = format!("{plan:?} {memory:?} {why}");
    assert!(!shown.contains("secret"), "{shown}");
    assert_eq!(
        plan.lines(),
        [
            "/etc/app.conf changes",
            "- /etc/gone.conf",
            "+ /etc/new/deep/key",
            "+ /etc/systemd/system/new.service",
            "- /etc/systemd/system/old.service",
            "unit new.service is enabled",
            "unit old.service is as the presets have it",
        ]
    );
}

/// Not a test by itself: what [`killed_at_any_step_it_leaves_the_machine_as_it_was`] runs and what dies.
#[tokio::test]
async fn child_that_is_killed() {
    let Some(folder) = std::env::var_os("KILN_TEST_MACHINE") else { return };
    let folder = std::mem::ManuallyDrop::new(Folder(folder.into()));
    let text = std::env::var("KILN_TEST_TEXT").unwrap();
    if text == "resume" {
        resumed(&folder, When::Running).await;
    } else {
        change(&folder, &wanted(&text), &rules(), &mut applied()).await;
    }
}

fn run_and_die(folder: &Folder, text: &str, step: &str) {
    let ended = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "machine::tests::child_that_is_killed", "--nocapture"])
        .env("KILN_TEST_MACHINE", &folder.0)
        .env("KILN_TEST_TEXT", text)
        .env("KILN_AGENT_DIE_AT", step)
        .output()
        .unwrap();
    assert!(!ended.status.success(), "it did not come to {step}: {}", String::from_utf8_lossy(&ended.stdout));
}

#[tokio::test]
async fn killed_at_any_step_it_leaves_the_machine_as_it_was() {
    for (text, step) in [
        ("better\n", "machine-journal"),
        ("better\n", "machine-units-before"),
        ("better\n", "machine-file-0"),
        ("better\n", "machine-file-3"),
        ("better\n", "machine-files"),
        ("better\n", "machine-daemon-reload"),
        ("better\n", "machine-unit-0"),
        ("better\n", "machine-action-0"),
        ("bad\n", "machine-failed"),
        ("bad\n", "machine-restored-files"),
        ("bad\n", "machine-restored-units"),
    ] {
        for (boot, why) in [
            ("first", "the agent ended before the change was done"),
            ("second", "the machine stopped before the change was done"),
        ] {
            let folder = Folder::new(&format!("killed-{step}-{boot}"));
            let tree = folder.tree();
            run_and_die(&folder, text, step);
            folder.write("proc/sys/kernel/random/boot_id", boot);
            let Resumed::PutBack(report) = resumed(&folder, When::BeforeNetwork).await else { panic!("{step}") };
            assert_eq!(report.phase, MachinePhase::RolledBack(why.into()), "{step}");
            assert_eq!(folder.tree(), tree, "{step}");
            assert_eq!(resumed(&folder, When::Running).await, Resumed::Nothing, "{step}");
            let memory = Store::open(&folder.state()).unwrap().load_machine().unwrap();
            assert_eq!(memory.failed.is_some(), boot == "second", "what took the machine down is not tried again");
            assert_eq!(memory.pending, None);
        }
    }
}

#[tokio::test]
async fn killed_on_the_way_back_it_goes_on() {
    let folder = Folder::new("back");
    let tree = folder.tree();
    run_and_die(&folder, "better\n", "machine-action-0");
    run_and_die(&folder, "resume", "machine-restored-files");
    run_and_die(&folder, "resume", "machine-put-back");
    assert_eq!(folder.tree(), tree);
    assert_eq!(resumed(&folder, When::Running).await, Resumed::Nothing);
}

#[tokio::test]
async fn killed_after_everything_was_done_it_is_kept() {
    for step in ["machine-done"] {
        let folder = Folder::new(step);
        run_and_die(&folder, "better\n", step);
        let tree = folder.tree();
        // Until it is remembered nothing else is begun.
        let (root, state) = (folder.root(), folder.state());
        let site = Site { root: &root, state_dir: &state };
        let refused = execute(&site, &MachineChange::default(), "r3", None).await.unwrap();
        assert_eq!(refused, Ended::Refused { why: "r2 has not ended; `kiln agent recover` ends it".into() });
        assert!(matches!(resumed(&folder, When::Running).await, Resumed::Kept(report) if report.revision == "r2"));
        assert_eq!(folder.tree(), tree);
        let memory = Store::open(&state).unwrap().load_machine().unwrap();
        assert_eq!(memory.applied, Some(("r2".into(), wanted("better\n"))));
    }
}

/// A change that needs a boot: kernel arguments, an image, and a file.
fn wanted_after_boot() -> Machine {
    Machine {
        kernel_arguments: vec!["audit=0".into()],
        kernel_arguments_absent: vec!["quiet".into()],
        system: System { os_image_url: Some("quay.io/os@sha256:2".into()), ..System::default() },
        ..before()
    }
}

#[tokio::test]
async fn a_change_that_needs_a_boot_is_verified_after_it() {
    let folder = Folder::new("boot");
    let mut memory = applied();
    let Done { plan, ended } = change(&folder, &wanted_after_boot(), &rules(), &mut memory).await;
    assert_eq!((ended, plan.needs()), (Ended::Reboot, Needs::Reboot));
    let (root, state) = (folder.root(), folder.state());
    let site = Site { root: &root, state_dir: &state };
    assert_eq!(reboot(&site, None).await.unwrap(), Ended::Reboot);
    assert_eq!(
        folder.log(),
        [
            "rpm-ostree kargs --delete-if-present=quiet --append-if-missing=audit=0",
            "rpm-ostree rebase --experimental ostree-unverified-registry:quay.io/os@sha256:2",
            "systemctl reboot",
        ]
    );
    assert!(matches!(resumed(&folder, When::Running).await, Resumed::AwaitsReboot(_)), "the boot is still to come");
    folder.write("proc/sys/kernel/random/boot_id", "second");
    folder.write("proc/cmdline", "BOOT_IMAGE=/vmlinuz audit=0\n");
    folder.write("simulated/image", "quay.io/os@sha256:2");
    assert!(matches!(resumed(&folder, When::BeforeNetwork).await, Resumed::AwaitsVerifying(_)));
    let Resumed::Kept(report) = resumed(&folder, When::Running).await else { panic!() };
    assert_eq!((report.phase, report.needs), (MachinePhase::Applied, Needs::Reboot));
    assert_eq!(resumed(&folder, When::Running).await, Resumed::Nothing);
}

#[tokio::test]
async fn a_boot_that_did_not_bring_what_was_asked_puts_everything_back_without_another_boot() {
    let folder = Folder::new("unverified");
    let tree = folder.tree();
    let mut machine = wanted_after_boot();
    machine.files.insert("/etc/app.conf".into(), file("after the boot\n", 0o644));
    change(&folder, &machine, &rules(), &mut applied()).await;
    folder.write("proc/sys/kernel/random/boot_id", "second");
    let Resumed::PutBack(report) = resumed(&folder, When::Running).await else { panic!() };
    let why = "the machine has booted, and this is still to be done: kernel argument quiet is removed";
    assert_eq!(report.phase, MachinePhase::RolledBack(why.into()));
    folder.write("proc/sys/kernel/random/boot_id", "first\n");
    assert_eq!(folder.tree(), tree);
    assert_eq!(
        folder.log()[2..],
        ["rpm-ostree kargs --delete-if-present=audit=0 --append-if-missing=quiet", "rpm-ostree cleanup --pending"]
    );
}

#[tokio::test]
async fn a_machine_that_refuses_to_boot_is_put_back() {
    let folder = Folder::new("never");
    folder.write("simulated/never-boots", "");
    let tree = folder.tree();
    change(&folder, &wanted_after_boot(), &rules(), &mut applied()).await;
    let (root, state) = (folder.root(), folder.state());
    let ended = reboot(&Site { root: &root, state_dir: &state }, None).await.unwrap();
    let why = "systemctl: `systemctl reboot` failed: Operation refused";
    assert!(matches!(&ended, Ended::RolledBack { why: found, .. } if found == why), "{ended:?}");
    assert_eq!(folder.tree(), tree);
}

#[tokio::test]
async fn what_cannot_work_is_refused_before_anything_is_touched() {
    let owned = |user: &str| {
        let wish = FileWish { user: Some(user.into()), ..file("x", 0o600) };
        MachineChange { writes: vec![("/etc/x".into(), Some(wish))], ..MachineChange::default() }
    };
    let folder_there =
        MachineChange { writes: vec![("/etc/systemd".into(), Some(file("x", 0o600)))], ..MachineChange::default() };
    let units = MachineChange { daemon_reload: true, ..MachineChange::default() };
    let image = MachineChange { os_image: Some("x".into()), ..MachineChange::default() };
    let folder = Folder::new("refused");
    let (root, state) = (folder.root(), folder.state());
    let site = Site { root: &root, state_dir: &state };
    let ended = execute(&site, &folder_there, "r", None).await.unwrap();
    assert!(
        matches!(&ended, Ended::RolledBack { why, .. } if why.contains("etc/systemd`: Directory not empty")),
        "{ended:?}"
    );
    for program in ["systemctl", "rpm-ostree"] {
        fs::remove_file(folder.0.join("usr/bin").join(program)).unwrap();
    }
    let tree = folder.tree();
    for (change, expected) in [
        (owned("nobody"), "/etc/x belongs to the user `nobody`, which this machine does not have"),
        (units, "units change, and this machine has no systemctl in /usr/bin; run it where systemd runs"),
        (
            image,
            "kernel arguments or the OS image change, and this machine has no rpm-ostree; \
             change them by its own means and try again",
        ),
    ] {
        let ended = execute(&site, &change, "r", None).await.unwrap();
        assert_eq!(ended, Ended::Refused { why: expected.into() });
    }
    assert_eq!(folder.tree(), tree);
    let units = observe::observe_units(&root, &["a.service".to_owned()].into()).await.unwrap();
    assert_eq!(units["a.service"], observe::UNKNOWN);
}

#[tokio::test]
async fn a_link_or_a_folder_where_a_file_is_wanted_counts_as_different_and_comes_back() {
    let folder = Folder::new("link");
    fs::remove_file(folder.0.join("etc/app.conf")).unwrap();
    std::os::unix::fs::symlink("passwd", folder.0.join("etc/app.conf")).unwrap();
    let tree = folder.tree();
    let machine = Machine { units: BTreeMap::new(), ..wanted("bad\n") };
    let found = observe::observe(&folder.root(), &[&machine]).await.unwrap();
    assert_eq!(drifted(&machine, &found)[0], "/etc/app.conf has other contents");
    let Done { ended, .. } = change(&folder, &machine, &rules(), &mut MachineMemory::default()).await;
    assert!(matches!(ended, Ended::RolledBack { .. }), "{ended:?}");
    assert_eq!(folder.tree(), tree);
}

#[tokio::test]
async fn what_somebody_touches_is_seen_within_seconds() {
    let folder = Folder::new("drift");
    let (root, machine) = (folder.root(), before());
    for (touch, expected) in
        [(("etc/app.conf", "edited\n"), vec!["/etc/app.conf has other contents"]), (("etc/app.conf", "good\n"), vec![])]
    {
        let watch = Watch::open(&root, &machine).unwrap();
        let began = Instant::now();
        folder.write(touch.0, touch.1);
        tokio::time::timeout(Duration::from_secs(5), watch.changed()).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        let found = observe::observe(&root, &[&machine]).await.unwrap();
        assert_eq!(drifted(&machine, &found), expected);
    }
    // Replaced by another one, and with another mode.
    let watch = Watch::open(&root, &machine).unwrap();
    folder.write("etc/.new", "good\n");
    fs::rename(folder.0.join("etc/.new"), folder.0.join("etc/app.conf")).unwrap();
    watch.changed().await;
    let found = observe::observe(&root, &[&machine]).await.unwrap();
    assert_eq!(drifted(&machine, &found), ["/etc/app.conf has mode 0644, not 0600"]);
    // What no config speaks of wakes nobody.
    let watch = Watch::open(&root, &machine).unwrap();
    folder.write("etc/other", "x");
    assert!(tokio::time::timeout(Duration::from_millis(500), watch.changed()).await.is_err());
    // Whoever stopped waiting in the middle of a burst is told the next time.
    folder.write("etc/app.conf", "edited\n");
    assert!(tokio::time::timeout(Duration::from_millis(50), watch.changed()).await.is_err());
    tokio::time::timeout(Duration::from_secs(2), watch.changed()).await.unwrap();
}

/// systemd's own program knows how to work on a folder; only what needs a running systemd is simulated.
#[tokio::test]
async fn units_are_enabled_and_masked_by_the_real_systemctl_and_go_back() {
    let real = Path::new("/usr/bin/systemctl");
    if !real.exists() {
        assert!(std::env::var_os("KILN_REQUIRE_ORACLES").is_none(), "there is no systemctl");
        eprintln!("not tried: there is no systemctl");
        return;
    }
    let folder = Folder::new("systemctl");
    let asks = "case $1 in is-enabled | enable | disable | mask | unmask | preset) exec /usr/bin/systemctl --root=\"$root\" \"$@\" ;; esac\nverb=$1";
    let script = SYSTEMCTL.replace("verb=$1", asks).replace("ROOT", &folder.0.display().to_string());
    folder.write("usr/bin/systemctl", &script);
    folder.set_mode("usr/bin/systemctl", 0o755);
    let installed = "[Service]\nExecStart=true\n[Install]\nWantedBy=multi-user.target\n";
    for path in ["etc/systemd/system/old.service", "usr/lib/systemd/system/lib.service"] {
        folder.write(path, installed);
    }
    let enabled =
        Command::new(real).arg("--root").arg(&folder.0).args(["enable", "old.service", "lib.service"]).output();
    assert!(enabled.unwrap().status.success());
    let unit = |enabled, masked, contents: Option<&str>| UnitWish {
        enabled,
        masked,
        contents: contents.map(str::to_owned),
        ..UnitWish::default()
    };
    let mut memory = applied();
    if let Some((_, machine)) = &mut memory.applied {
        machine.units = [("old.service".to_owned(), unit(Some(true), false, Some(installed)))].into();
    }
    let machine = |text: &str| Machine {
        units: [
            ("new.service".to_owned(), unit(Some(true), false, Some(installed))),
            ("lib.service".to_owned(), unit(None, true, None)),
        ]
        .into(),
        ..wanted(text)
    };
    let mut rules = rules();
    rules.units.push(UnitRule { name: "lib.service".into(), actions: vec![Action::None] });
    let tree = folder.tree();
    let Done { ended, .. } = change(&folder, &machine("bad\n"), &rules, &mut memory).await;
    assert!(matches!(ended, Ended::RolledBack { .. }), "{ended:?}");
    assert_eq!(folder.tree(), tree);
    let Done { ended, .. } = change(&folder, &machine("better\n"), &rules, &mut memory).await;
    assert!(matches!(ended, Ended::Applied { .. }), "{ended:?}");
    let tree = folder.tree();
    let units: Vec<&str> = tree.keys().filter_map(|path| Some(path.split_once("/systemd/system/")?.1)).collect();
    // A mask leaves the link of the target, which then leads nowhere.
    let wants =
        ["multi-user.target.wants", "multi-user.target.wants/lib.service", "multi-user.target.wants/new.service"];
    assert_eq!(units, [&["lib.service"], &wants[..], &["new.service"]].concat());
    let (found, again) = plan_files(&folder.root(), &memory, &machine("better\n"), &rules).await.unwrap();
    assert!(again.unwrap().is_empty());
    assert_eq!(drifted(&machine("better\n"), &found), Vec::<String>::new());
}

#[test]
fn plans_show_at_most_as_many_lines_as_people_read() {
    let files = (0..100).map(|number| (format!("/etc/{number:03}"), file("secret", 0o600))).collect();
    let machine = Machine { files, ..Machine::default() };
    let change = plan_machine(None, &machine, &Default::default(), &rules()).unwrap();
    let lines = Plan { change, ..Plan::default() }.lines();
    assert_eq!((lines.len(), lines[63].as_str()), (64, "and 37 more"));
}
