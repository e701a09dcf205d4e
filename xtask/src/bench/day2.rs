//! A running node's network changed by `kiln agent apply` and by `nmstatectl apply`, in one run beside one NetworkManager.
//!
//! The node is a network namespace with a real NetworkManager (`fleet.sh` of the tests). Both programs make the same bridges
//! with static addresses, do it again with nothing to change, and remove them. They take turns; the median of the rounds
//! counts. Before each step the node comes to rest: NetworkManager is busy for seconds after a hundred bridges were made, and
//! writes down what it did only then; whoever came next would wait for what the one before it left.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::{build, install_peer, target_of};

#[derive(clap::Args)]
pub struct Args {
    /// How often each program does everything
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// The profile Kiln is built with
    #[arg(long, default_value = "release")]
    profile: String,
    /// Also let nmstatectl try what this kernel cannot do, which takes it minutes
    #[arg(long)]
    patient: bool,
}

/// What is asked for.
const NO_OP_MILLISECONDS: f64 = 50.0;
const OF_PEER: f64 = 0.5;
const PERMANENT_ERROR_SECONDS: f64 = 5.0;
const ROLLBACK_SECONDS: f64 = 2.0;

pub fn run(args: &Args) -> Result<()> {
    build(&args.profile)?;
    let peer = fs::canonicalize(install_peer()?)?;
    let kiln = fs::canonicalize(target_of(&args.profile).join("kiln"))?;
    let node = Node::start()?;
    let programs = [
        ("kiln", format!("{} agent apply --soak 0s", kiln.display())),
        ("nmstatectl", format!("{} apply", peer.display())),
    ];

    println!("\n| bridges | what | kiln | nmstatectl | kiln / nmstatectl | goal | |\n|---|---|---|---|---|---|---|");
    for count in [1, 20, 100] {
        node.write("there.yml", &bridges(count, "up"))?;
        node.write("gone.yml", &bridges(count, "absent"))?;
        // First, again, removed: of each program.
        let mut times = [[const { Vec::new() }; 3], [const { Vec::new() }; 3]];
        for _ in 0..args.rounds {
            for (program, (_, command)) in programs.iter().enumerate() {
                for (step, file) in ["there.yml", "there.yml", "gone.yml"].into_iter().enumerate() {
                    node.rest()?;
                    let took = node.time(&format!("{command} {}", node.file(file)))?;
                    times[program][step].push(took);
                    let there = node.run("ls -d /sys/class/net/kb* 2>/dev/null | wc -l")?;
                    let expected = if step < 2 { count } else { 0 };
                    ensure!(
                        there.trim() == expected.to_string(),
                        "{command}: {} bridges, expected {expected}",
                        there.trim()
                    );
                }
            }
        }
        for (step, what) in ["made", "nothing to change", "removed"].into_iter().enumerate() {
            let [kiln, peer] = [median(&mut times[0][step]), median(&mut times[1][step])];
            let ratio = kiln / peer;
            let (goal, met) = match step {
                1 => (format!("≤ {NO_OP_MILLISECONDS:.0} ms"), kiln * 1e3 <= NO_OP_MILLISECONDS),
                _ => (format!("≤ {OF_PEER}×"), ratio <= OF_PEER),
            };
            println!(
                "| {count} | {what} | {:.0} ms | {:.0} ms | {ratio:.3}× | {goal} | {} |",
                kiln * 1e3,
                peer * 1e3,
                if met { "met" } else { "**missed**" }
            );
        }
    }

    println!("\n| what | kiln | nmstatectl | goal | |\n|---|---|---|---|---|");
    node.write("bond.yml", "interfaces:\n- name: bond9\n  type: bond\n  state: up\n  link-aggregation: {mode: active-backup, port: [eth2]}\n")?;
    let refused = node.time_failing(&format!("{} {}", programs[0].1, node.file("bond.yml")))?;
    let patient = match args.patient {
        true => format!("{:.1} s", node.time_failing(&format!("{} {}", programs[1].1, node.file("bond.yml")))?),
        false => "not asked (--patient)".into(),
    };
    let met = |met: bool| if met { "met" } else { "**missed**" };
    println!(
        "| what the kernel cannot do, refused | {refused:.2} s | {patient} | < {PERMANENT_ERROR_SECONDS} s | {} |",
        met(refused < PERMANENT_ERROR_SECONDS)
    );

    let (whole, rest) = node.roll_back(&kiln)?;
    println!(
        "| put back after a failed probe (of {whole:.1} s in all) | {rest:.2} s | has no probes | < {ROLLBACK_SECONDS} s | {} |",
        met(rest < ROLLBACK_SECONDS)
    );
    Ok(())
}

fn bridges(count: u32, state: &str) -> String {
    let one = |number: u32| {
        let address = format!("{{ip: 10.77.{number}.1, prefix-length: 24}}");
        let ip = format!("  ipv4: {{enabled: true, dhcp: false, address: [{address}]}}\n  ipv6: {{enabled: false}}\n");
        let rest = if state == "up" {
            format!("  bridge: {{options: {{stp: {{enabled: false}}}}, port: []}}\n{ip}")
        } else {
            String::new()
        };
        format!("- name: kb{number}\n  type: linux-bridge\n  state: {state}\n{rest}")
    };
    format!("interfaces:\n{}", (0..count).map(one).collect::<String>())
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// One node of a site of its own; dropped, it ends.
struct Node {
    work: PathBuf,
    process: Child,
}

impl Node {
    fn start() -> Result<Node> {
        let work = std::env::temp_dir().join(format!("kiln-bench-day2-{}", std::process::id()));
        fs::create_dir_all(work.join("site"))?;
        let process = Command::new("crates/kiln/tests/support/fleet.sh")
            .arg("site")
            .arg(&work)
            .arg("node")
            .stdin(Stdio::null())
            .stdout(File::create(work.join("start.log"))?)
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start crates/kiln/tests/support/fleet.sh")?;
        let node = Node { work, process };
        let deadline = Instant::now() + Duration::from_secs(30);
        while !node.work.join("node/ready").exists() {
            ensure!(
                Instant::now() < deadline,
                "the node did not start; is this run by root, with network-manager and dnsmasq-base installed?"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(node)
    }

    fn file(&self, name: &str) -> String {
        self.work.join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.work.join(name), text)?)
    }

    /// Runs a script in the node: exit code and what it said.
    fn ask(&self, script: &str) -> Result<(i32, String)> {
        let place = self.work.join("node");
        fs::write(place.join("script"), script)?;
        OpenOptions::new().write(true).open(place.join("ask"))?.write_all(b"go\n")?;
        let mut output = String::new();
        File::open(place.join("answer"))?.read_to_string(&mut output)?;
        let (output, code) = output.trim_end().rsplit_once("exit ").context("the node did not answer")?;
        Ok((code.parse()?, output.to_owned()))
    }

    fn run(&self, script: &str) -> Result<String> {
        let (code, output) = self.ask(script)?;
        ensure!(code == 0, "{script}: exit code {code}\n{output}");
        Ok(output)
    }

    /// Wall seconds of a command that must end with the code.
    fn time_to(&self, command: &str, succeeds: bool) -> Result<f64> {
        let script = format!(
            "a=$(date +%s%N); {command} > {0} 2>&1; code=$?; b=$(date +%s%N); echo $code $((b - a))",
            self.file("said")
        );
        let output = self.run(&script)?;
        let (code, nanoseconds) = output.trim().split_once(' ').context("no time")?;
        if (code == "0") != succeeds {
            bail!("{command}: exit code {code}\n{}", fs::read_to_string(self.work.join("said"))?);
        }
        Ok(nanoseconds.parse::<f64>()? / 1e9)
    }

    /// Until NetworkManager has used no processor time for three seconds.
    fn rest(&self) -> Result<()> {
        self.run(
            "pid=$(pidof NetworkManager); was=; for look in $(seq 20); do
               is=$(cut -d' ' -f14,15 /proc/$pid/stat); [ \"$is\" = \"$was\" ] && exit 0; was=$is; sleep 3
             done; echo NetworkManager does not come to rest; exit 1",
        )?;
        Ok(())
    }

    fn time(&self, command: &str) -> Result<f64> {
        self.time_to(command, true)
    }

    fn time_failing(&self, command: &str) -> Result<f64> {
        self.time_to(command, false)
    }

    /// A change that cuts the node off its gateway: seconds in all, and without those the probes were given.
    fn roll_back(&self, kiln: &Path) -> Result<(f64, f64)> {
        const WITHIN: f64 = 2.0;
        self.write("cut.yml", "interfaces:\n- name: eth0\n  type: ethernet\n  state: up\n  ipv4: {enabled: true, dhcp: false, address: [{ip: 10.88.0.1, prefix-length: 24}]}\n")?;
        let before = self.run("ip -4 -o addr show eth0; ip -4 route")?;
        let command =
            format!("{} agent apply --probe gateway --timeout {WITHIN}s {}", kiln.display(), self.file("cut.yml"));
        let whole = self.time_failing(&command)?;
        let after = self.run("ip -4 -o addr show eth0; ip -4 route")?;
        ensure!(before == after, "not put back:\n{before}\n{after}");
        Ok((whole, whole - WITHIN))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Nothing can be done about a failure here; the folder shows it.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.work);
    }
}
