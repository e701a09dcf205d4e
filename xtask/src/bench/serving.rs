//! CPU time of two HTTP servers for the same gigabyte over loopback, in turns.
//!
//! Over loopback the sender's core also does the receiver's half of TCP, unless the two happen to share it: one server's
//! time for the same bytes varies by a factor of three with where the scheduler puts it. So servers run on one core and
//! the client on another, and all rounds count, not the luckiest.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::KILN;

/// CPU-seconds per GB over all rounds.
pub struct Compared {
    pub kiln: f64,
    pub nginx: f64,
    pub kiln_megabytes: f64,
}

const ROUNDS: u32 = 9;

/// Fetches the composed image from Kiln and the base from nginx several times.
pub fn compare(store: &Path, base: &Path, work: &Path, composed: &str) -> Result<Compared> {
    let (kiln, address) = start_kiln(store)?;
    let kiln = Ended(kiln);
    let port = free_port()?;
    let nginx = Ended(start_nginx(base, work, port)?);
    let name = base.file_name().and_then(|name| name.to_str()).context("the image has no name")?;
    let servers = [
        ("kiln image serve", &kiln, format!("{address}{composed}")),
        ("nginx, sendfile on", &nginx, format!("http://127.0.0.1:{port}/{name}")),
    ];
    let mut each = [0f64; 2];
    let mut speed = [0f64; 2];
    for round in 0..=ROUNDS {
        for (number, (_, server, url)) in servers.iter().enumerate() {
            let before = cpu_seconds(server.0.id())?;
            let (bytes, seconds) = fetch(url)?;
            let used = cpu_seconds(server.0.id())? - before;
            // The first round reads the file from the disk.
            if round > 0 {
                each[number] += used * 1e9 / bytes / f64::from(ROUNDS);
                speed[number] = speed[number].max(bytes / seconds / 1e9);
            }
        }
    }
    for (number, (what, ..)) in servers.iter().enumerate() {
        println!("| {what}, 1 GB over loopback, {:.2} GB/s | | {:.3} | | |", speed[number], each[number]);
    }
    Ok(Compared { kiln: each[0], nginx: each[1], kiln_megabytes: peak_megabytes(kiln.0.id())? })
}

/// Ends the server it was given, and no other process.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// The server and the address it printed.
fn start_kiln(store: &Path) -> Result<(Child, String)> {
    let mut child = on_core(0, KILN)
        .args(["image", "serve", "--listen", "127.0.0.1:0", "--store"])
        .arg(store)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start kiln")?;
    let mut lines = BufReader::new(child.stderr.take().context("no standard error")?);
    let mut line = String::new();
    lines.read_line(&mut line)?;
    // What it says later must be read by somebody, or it waits.
    std::thread::spawn(move || {
        let mut rest = Vec::new();
        let _ = lines.read_to_end(&mut rest);
    });
    let start = line.find("http://").with_context(|| format!("kiln image serve said: {line}"))?;
    Ok((child, line[start..].trim().trim_end_matches('/').to_owned()))
}

/// One worker, so that the master and it are all there is to count.
fn start_nginx(base: &Path, work: &Path, port: u16) -> Result<Child> {
    let folder = fs::canonicalize(work)?;
    let root = fs::canonicalize(base)?;
    let root = root.parent().context("the image has no folder")?;
    let (folder, root) = (folder.display(), root.display());
    let configuration = format!(
        "daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{}}
http {{ sendfile on; tcp_nopush on; access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port}; location / {{ root {root}; }} }} }}
"
    );
    let path = work.join("nginx.conf");
    fs::write(&path, configuration)?;
    let child = on_core(0, "/usr/sbin/nginx")
        .arg("-c")
        .arg(fs::canonicalize(&path)?)
        .stdin(Stdio::null())
        .stderr(File::create(work.join("nginx.err"))?)
        .spawn()
        .context("cannot start nginx")?;
    for _ in 0..200 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(child);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    anyhow::bail!("nginx does not answer: {}", fs::read_to_string(work.join("nginx.err"))?)
}

/// Bytes received and seconds taken.
fn fetch(url: &str) -> Result<(f64, f64)> {
    let output = on_core(1, "curl")
        .args(["-sS", "--fail", "-o", "/dev/null", "-w", "%{size_download} %{time_total}", url])
        .output()
        .context("cannot start curl")?;
    ensure!(output.status.success(), "curl {url}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let (bytes, seconds) = text.split_once(' ').context("curl printed no figures")?;
    Ok((bytes.parse()?, seconds.parse()?))
}

/// A command that keeps to one core, where there are two.
fn on_core(core: usize, program: &str) -> Command {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return Command::new(program);
    }
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &core.to_string(), program]);
    command
}

/// User and system time of a process with all its threads.
fn cpu_seconds(process: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in parentheses may contain spaces; the rest is numbers.
    let (_, numbers) = status.rsplit_once(')').context("no process name")?;
    let ticks: f64 = numbers.split_whitespace().skip(11).take(2).filter_map(|number| number.parse::<f64>().ok()).sum();
    // sysconf(_SC_CLK_TCK) is 100 on every Linux that runs user programs.
    Ok(ticks / 100.0)
}

fn peak_megabytes(process: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes / 1024.0)
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
