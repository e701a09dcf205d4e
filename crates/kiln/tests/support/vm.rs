//! A virtual machine that boots from a disk, without KVM: QEMU's own emulation, which every machine has.
//!
//! Its console is kept with the time of each line; [`Lines::wait_for`] waits for one, never longer than it is told. Over
//! a second serial line the real root answers questions (the service `answer` of the test bed). The network is a
//! [`Trunk`]: nothing the machine sends leaves this process except what goes to the hub.
//!
//! Not here: what is booted; `cargo xtask testbed` makes that.

#![allow(dead_code, clippy::unwrap_used, reason = "a test fails loudly; a test file may use a part of it")]

#[path = "vm/trunk.rs"]
pub mod trunk;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use kiln_testimage::oracle::skip;
use trunk::Trunk;

/// What every boot has on its command line: the console, a kernel that does not wait, a disk like CoreOS's, and time where
/// the machine is busy: without KVM ninety seconds may pass before the disk is there.
pub const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off random.trust_cpu=on audit=0 root=LABEL=root \
    systemd.firstboot=no systemd.default_timeout_start_sec=900 systemd.default_device_timeout_sec=900 systemd.show_status=0 systemd.gpt_auto=0 rd.retry=900 rd.udev.log_level=3";

/// The files of the test bed.
#[derive(Clone)]
pub struct Bed {
    pub kernel: PathBuf,
    pub initrd: PathBuf,
    initrd_appended: PathBuf,
    /// The file system of the root.
    pub root: PathBuf,
}

impl Bed {
    /// The one `cargo xtask testbed` made; without it the test is skipped in one line, or fails where oracles are required.
    pub fn find(test: &str) -> Option<Bed> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/testbed");
        let file = |name| Some(folder.join(name)).filter(|file| file.is_file());
        let bed = || {
            let (kernel, root) = (file("vmlinuz")?, file("root.ext4")?);
            Some(Bed { kernel, root, initrd: file("initrd")?, initrd_appended: file("initrd-appended")? })
        };
        let bed = bed();
        if bed.is_none() {
            skip(test, "there is no test bed (cargo xtask testbed makes it)");
        }
        bed
    }

    /// With an initramfs that has no witness of its own, and the witness appended to it.
    pub fn with_appended_witness(&self) -> Bed {
        Bed { initrd: self.initrd_appended.clone(), ..self.clone() }
    }
}

/// A running machine; dropped, it is killed.
pub struct Vm {
    process: Child,
    pub console: Lines,
    answers: Lines,
    questions: UnixStream,
}

impl Vm {
    /// Boots a disk with these kernel arguments. `folder` is for its sockets and is not shared.
    pub fn boot(bed: &Bed, disk: &Path, arguments: &str, trunk: &Trunk, folder: &Path) -> Vm {
        Vm::boot_with(bed, disk, arguments, trunk, folder, &[])
    }

    /// The same with further arguments for QEMU.
    pub fn boot_with(bed: &Bed, disk: &Path, arguments: &str, trunk: &Trunk, folder: &Path, for_qemu: &[String]) -> Vm {
        let socket = folder.join("answers");
        let _ = std::fs::remove_file(&socket);
        // However the test ends, the machine ends with it.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
            // One processor: with two emulated ones the kernel now and then waits for the other for ever.
            .args(["-M", "pc", "-accel", "tcg,tb-size=256", "-cpu", "Nehalem", "-m", "768"])
            .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
            .args(["-serial", "stdio", "-serial", &format!("unix:{},server=on,wait=off", socket.display())])
            .args(["-drive", &format!("file={},if=none,id=disk,format=raw,cache=unsafe", disk.display())])
            .args(["-device", "virtio-blk-pci,drive=disk", "-device", "virtio-rng-pci"])
            .arg("-kernel")
            .arg(&bed.kernel)
            .arg("-initrd")
            .arg(&bed.initrd)
            .args(["-append", arguments])
            .args(trunk.qemu_arguments())
            .args(for_qemu)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut process = command.spawn().unwrap();
        let log = File::create(folder.join("console")).unwrap();
        let console = Lines::follow("console", process.stdout.take().unwrap(), Some(log));
        let questions = connect(&socket, &mut process);
        let answers = Lines::follow("answers", questions.try_clone().unwrap(), None);
        Vm { process, console, answers, questions }
    }

    /// Waits until the real root answers.
    pub fn wait_for_real_root(&self, limit: Duration) {
        if !self.answers.wait_for(&["ready"], limit) {
            panic!("the real root never answered; the console:\n{}", self.console.text());
        }
    }

    /// What a shell command prints in the real root.
    pub fn ask(&self, command: &str) -> String {
        let before = self.answers.count();
        (&self.questions).write_all(format!("{command}\n").as_bytes()).unwrap();
        let Some(end) = self.answers.wait_for_after(before, &["end "], Duration::from_secs(120)) else {
            panic!("no answer to `{command}`; the console:\n{}", self.console.text());
        };
        self.answers.between(before, end).strip_prefix("begin\n").unwrap_or_default().to_owned()
    }

    /// Lets the machine end by itself, with all its file systems in order.
    pub fn end(self) {
        (&self.questions).write_all(b"systemctl poweroff --force\n").unwrap();
        self.wait_for_end();
    }

    /// Waits until the machine has ended, which it also does instead of booting again.
    pub fn wait_for_end(mut self) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.process.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the machine does not end; the console:\n{}", self.console.text());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A power cut.
    pub fn cut_power(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// QEMU makes the socket before it runs the machine.
fn connect(socket: &Path, process: &mut Child) -> UnixStream {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "{}: {error}", socket.display()),
        }
        if let Some(status) = process.try_wait().unwrap() {
            panic!("QEMU ended at once: {status}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Lines that come, with the time of each since the start.
#[derive(Clone)]
pub struct Lines {
    started: Instant,
    shared: Arc<(Mutex<Seen>, Condvar)>,
}

#[derive(Default)]
struct Seen {
    lines: Vec<(Duration, String)>,
    ended: bool,
}

impl Lines {
    /// With a log, whoever watches a test that hangs can read along.
    fn follow(name: &str, source: impl Read + Send + 'static, mut log: Option<File>) -> Lines {
        let lines = Lines { started: Instant::now(), shared: Arc::default() };
        let writer = lines.clone();
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread
            .spawn(move || {
                let mut source = BufReader::new(source);
                let mut line = Vec::new();
                while source.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                    if let Some(log) = &mut log {
                        let _ = writeln!(log, "{:8.2} {text}", writer.started.elapsed().as_secs_f64());
                    }
                    writer.add(|seen| seen.lines.push((writer.started.elapsed(), text)));
                    line.clear();
                }
                writer.add(|seen| seen.ended = true);
            })
            .unwrap();
        lines
    }

    fn add(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.shared.0.lock().unwrap());
        self.shared.1.notify_all();
    }

    /// Waits for a line with all these texts. False: not in this time, or there will be no more lines.
    pub fn wait_for(&self, texts: &[&str], limit: Duration) -> bool {
        self.wait_for_after(0, texts, limit).is_some()
    }

    /// The index of the first line with all these texts that is not among the first `before`.
    fn wait_for_after(&self, before: usize, texts: &[&str], limit: Duration) -> Option<usize> {
        let deadline = Instant::now() + limit;
        let mut seen = self.shared.0.lock().unwrap();
        let mut looked_at = before;
        loop {
            let fits = |(_, line): &(Duration, String)| texts.iter().all(|text| line.contains(text));
            if let Some(found) = seen.lines[looked_at..].iter().position(fits) {
                return Some(looked_at + found);
            }
            looked_at = seen.lines.len();
            let left = deadline.checked_duration_since(Instant::now())?;
            if seen.ended {
                return None;
            }
            seen = self.shared.1.wait_timeout(seen, left).unwrap().0;
        }
    }

    fn count(&self) -> usize {
        self.shared.0.lock().unwrap().lines.len()
    }

    fn between(&self, from: usize, to: usize) -> String {
        self.shared.0.lock().unwrap().lines[from..to].iter().map(|(_, line)| format!("{line}\n")).collect()
    }

    /// Everything so far, with times.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (at, line) in &self.shared.0.lock().unwrap().lines {
            let _ = writeln!(text, "{:8.2} {line}", at.as_secs_f64());
        }
        text
    }
}
