//! The image server over real sockets: ranges, parallel readers, slow and hostile peers, TLS, signatures.
#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kiln::image_server::{Limits, Server, Service, route, tls};
use kiln_image::Segment;
use kiln_image::store::{Assembly, BaseKind, BaseName, HostName, Placement, Store};
use kiln_testimage::{TempDir, filling::filling};
use proptest::prelude::*;

/// A served store with one base of 300 KB and images made of it.
struct Served {
    folder: TempDir,
    store: Store,
    address: SocketAddr,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    log: Arc<Mutex<Vec<String>>>,
    /// The whole image of host `n1`, as it must arrive.
    whole: Vec<u8>,
}

fn host(name: &str) -> HostName {
    name.parse().unwrap()
}

fn base() -> BaseName {
    "rhcos".parse().unwrap()
}

impl Served {
    fn start(limits: Limits, certificate: Option<(&Path, &Path)>) -> Served {
        let folder = TempDir::new("image-server");
        let store = Store::create(&folder.path().join("store")).unwrap();
        let bytes = filling(1, 300_000);
        std::fs::write(folder.path().join("rhcos.qcow2.gz"), &bytes).unwrap();
        let record =
            store.add_base(&base(), BaseKind::Qcow2Gz, &folder.path().join("rhcos.qcow2.gz"), Placement::Copy).unwrap();
        let segments = [
            Segment::Own(filling(2, 700)),
            Segment::Base(1000..200_000),
            Segment::Own(filling(3, 5000)),
            Segment::Base(200_100..300_000),
            Segment::Own(filling(4, 33)),
        ];
        let mut whole = Vec::new();
        for segment in &segments {
            match segment {
                Segment::Base(range) => whole.extend_from_slice(&bytes[range.start as usize..range.end as usize]),
                Segment::Own(own) => whole.extend_from_slice(own),
            }
        }
        let mut image = Assembly::from_segments(&segments);
        store.put_image(&host("n1"), &base(), &record, &image).unwrap();
        image.confidential = true;
        store.put_image(&host("secret"), &base(), &record, &image).unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&log);
        let service = Service {
            store: store.clone(),
            key: store.url_key().unwrap(),
            tls: certificate.map(|(certificate, key)| tls::read_tls_config(certificate, key).unwrap()),
            limits,
            log: Box::new(move |line| lines.lock().unwrap().push(line.to_string())),
        };
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), service).unwrap();
        let address = server.address().unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = thread::spawn(move || {
            server.run(&stopped);
            server.finish();
        });
        Served { folder, store, address, stop: Some(stop), thread: Some(thread), log, whole }
    }

    fn plain() -> Served {
        Served::start(Limits::default(), None)
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// One request on a connection of its own.
    fn get(&self, path: &str, headers: &str) -> Reply {
        let mut stream = self.connect();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n").as_bytes()).unwrap();
        Reply::read(&mut stream)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

const IMAGE: &str = "/images/n1/rhcos.qcow2.gz";

#[derive(Debug)]
struct Reply {
    head: String,
    body: Vec<u8>,
}

impl Reply {
    fn read(stream: &mut impl Read) -> Reply {
        let mut reply = Self::read_head(stream);
        let length = reply.header("Content-Length").map_or(0, |text| text.parse().unwrap());
        reply.body.resize(length, 0);
        stream.read_exact(&mut reply.body).unwrap();
        reply
    }

    fn read_head(stream: &mut impl Read) -> Reply {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        Reply { head: String::from_utf8(head).unwrap(), body: Vec::new() }
    }

    fn status(&self) -> &str {
        &self.head[9..12]
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

#[test]
fn an_image_arrives_whole_with_its_headers() {
    let served = Served::plain();
    let reply = served.get(IMAGE, "");
    assert_eq!(reply.status(), "200");
    assert!(reply.body == served.whole);
    assert_eq!(reply.header("Content-Type"), Some("application/gzip"));
    assert_eq!(reply.header("Accept-Ranges"), Some("bytes"));
    assert_eq!(reply.header("Content-Encoding"), None);
    assert!(reply.header("Date").unwrap().ends_with(" GMT"));
    let etag = reply.header("ETag").unwrap().to_string();
    assert!(etag.starts_with("\"pieces-"), "{etag}");
    assert_eq!(served.get(IMAGE, &format!("If-None-Match: {etag}\r\n")).status(), "304");
    let resumed = served.get(IMAGE, &format!("Range: bytes=1000-\r\nIf-Range: {etag}\r\n"));
    assert!(resumed.status() == "206" && resumed.body == served.whole[1000..]);
    let untouched = served.get("/bases/rhcos.qcow2.gz", "");
    assert!(untouched.body == filling(1, 300_000));
    assert!(untouched.header("Repr-Digest").unwrap().starts_with("sha-256=:"));
    assert_eq!(served.get("/healthz", "").text(), "ok\n");
    for nothing in
        ["/", "/images/", "/images/n1/", "/images/n1/rhcos.qcow2", "/images/n2/rhcos.qcow2.gz", "/../key", "/key"]
    {
        assert_eq!(served.get(nothing, "").status(), "404", "{nothing}");
    }
}

#[test]
fn one_connection_carries_many_requests_also_at_once() {
    let served = Served::plain();
    let mut stream = served.connect();
    let request =
        |method: &str, range: &str| format!("{method} {IMAGE} HTTP/1.1\r\nHost: a\r\nRange: bytes={range}\r\n\r\n");
    let all = [request("GET", "0-9"), request("HEAD", "0-9"), request("GET", "700-709"), request("GET", "-5")].concat();
    stream.write_all(all.as_bytes()).unwrap();
    assert_eq!(Reply::read(&mut stream).body, served.whole[..10]);
    let head = Reply::read_head(&mut stream);
    assert_eq!(
        (head.status(), head.header("Content-Length").unwrap()),
        ("200", served.whole.len().to_string().as_str())
    );
    assert_eq!(Reply::read(&mut stream).body, served.whole[700..710]);
    let last = Reply::read(&mut stream);
    let size = served.whole.len();
    assert_eq!(last.header("Content-Range").unwrap(), format!("bytes {}-{}/{size}", size - 5, size - 1));
    assert_eq!(last.body, served.whole[served.whole.len() - 5..]);
}

#[test]
fn parallel_ranges_of_one_image_are_all_right() {
    let served = Served::plain();
    thread::scope(|scope| {
        for reader in 0..16usize {
            let served = &served;
            scope.spawn(move || {
                let mut stream = served.connect();
                for turn in 0..20usize {
                    let start = (reader * 17_431 + turn * 9_173) % served.whole.len();
                    let end = (start + 50_000).min(served.whole.len());
                    let request =
                        format!("GET {IMAGE} HTTP/1.1\r\nHost: a\r\nRange: bytes={start}-{}\r\n\r\n", end - 1);
                    stream.write_all(request.as_bytes()).unwrap();
                    assert!(Reply::read(&mut stream).body == served.whole[start..end]);
                }
            });
        }
    });
}

/// The parts of a multipart body with their ranges, read by their own lengths.
fn parts(reply: &Reply) -> Vec<(u64, Vec<u8>)> {
    let boundary = reply.header("Content-Type").unwrap().strip_prefix("multipart/byteranges; boundary=").unwrap();
    let mut rest = reply.body.as_slice();
    let mut found = Vec::new();
    loop {
        rest = rest.strip_prefix(b"\r\n").unwrap_or(rest).strip_prefix(format!("--{boundary}").as_bytes()).unwrap();
        if rest == b"--\r\n" {
            return found;
        }
        let end = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
        let head = std::str::from_utf8(&rest[..end]).unwrap();
        let range = head.lines().find_map(|line| line.strip_prefix("Content-Range: bytes ")).unwrap();
        let (first, last) = range.split_once('/').unwrap().0.split_once('-').unwrap();
        let (first, last): (u64, u64) = (first.parse().unwrap(), last.parse().unwrap());
        let length = (last - first + 1) as usize;
        found.push((first, rest[end..end + length].to_vec()));
        rest = &rest[end + length..];
    }
}

#[test]
fn random_ranges_are_slices_of_the_file() {
    let served = Served::plain();
    let size = served.whole.len() as u64;
    let position = prop_oneof![0..size + 100, 600..800u64, 199_600..205_000u64];
    let spec = (position, prop_oneof![0..200u64, 0..size], 0..3u8).prop_map(|(first, length, kind)| match kind {
        0 => format!("{first}-"),
        1 => format!("-{length}"),
        _ => format!("{first}-{}", first + length),
    });
    proptest!(ProptestConfig::with_cases(200), |(specs in prop::collection::vec(spec, 1..6))| {
        let reply = served.get(IMAGE, &format!("Range: bytes={}\r\n", specs.join(",")));
        let sent = match reply.status() {
            "416" => Vec::new(),
            "206" => match reply.header("Content-Range") {
                Some(range) => {
                    let first = range["bytes ".len()..].split('-').next().unwrap().parse().unwrap();
                    vec![(first, reply.body.clone())]
                }
                None => parts(&reply),
            },
            other => panic!("{other} for {specs:?}"),
        };
        for (first, bytes) in &sent {
            prop_assert!(bytes[..] == served.whole[*first as usize..*first as usize + bytes.len()]);
        }
        // What was asked for is in what was sent.
        for spec in &specs {
            let (first, last) = spec.split_once('-').unwrap();
            let (start, end) = match (first.parse::<u64>(), last.parse::<u64>()) {
                (Ok(first), Ok(last)) => (first, (last + 1).min(size)),
                (Ok(first), Err(_)) => (first, size),
                (Err(_), Ok(count)) => (size - count.min(size), size),
                (Err(_), Err(_)) => unreachable!(),
            };
            let covered = sent.iter().any(|(first, bytes)| *first <= start && end <= first + bytes.len() as u64);
            prop_assert!(start >= end || covered, "{spec}");
        }
    });
}

#[test]
fn a_host_composed_meanwhile_is_served_at_once() {
    let served = Served::plain();
    let path = "/images/n9/rhcos.qcow2.gz";
    assert_eq!(served.get(path, "").status(), "404");
    let record = served.store.base(&base()).unwrap().unwrap();
    let image = Assembly::from_segments(&[Segment::Own(b"new".to_vec())]);
    served.store.put_image(&host("n9"), &base(), &record, &image).unwrap();
    assert_eq!(served.get(path, "").text(), "new");
    let image = Assembly::from_segments(&[Segment::Own(b"newer".to_vec())]);
    served.store.put_image(&host("n9"), &base(), &record, &image).unwrap();
    assert_eq!(served.get(path, "").text(), "newer");
    assert!(served.store.forget_host(&host("n9"), None).unwrap());
    assert_eq!(served.get(path, "").status(), "404");
}

#[test]
fn an_image_with_secrets_needs_a_signature_that_holds() {
    let served = Served::plain();
    let path = "/images/secret/rhcos.qcow2.gz";
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let key = served.store.url_key().unwrap();
    let good = route::signed_query(&key, path, now + 60);
    let reply = served.get(&format!("{path}?sha256=00&{good}"), "");
    assert_eq!((reply.status(), reply.header("Cache-Control")), ("200", Some("private, no-store")));
    assert!(reply.body == served.whole);
    let old = route::signed_query(&key, path, now - 1);
    let other = route::signed_query(&key, IMAGE, now + 60);
    for (query, reason) in [
        ("", "this address needs a signature: use the one that `kiln image compose` prints\n"),
        (&*format!("?{old}"), "this address has expired: `kiln image compose` prints a new one\n"),
        (&*format!("?{other}"), "the signature does not belong to this address\n"),
        (&*format!("?{}", good.replace("expires=1", "expires=2")), "the signature does not belong to this address\n"),
    ] {
        let reply = served.get(&format!("{path}{query}"), "Range: bytes=0-1\r\n");
        assert_eq!((reply.status(), reply.text().as_str()), ("403", reason), "{query}");
    }
    let log = served.log.lock().unwrap().join("\n");
    assert!(log.contains("GET /images/secret/rhcos.qcow2.gz 403"), "{log}");
    assert!(!log.contains("signature") && !log.contains('?'), "{log}");
}

#[test]
fn slow_and_silent_peers_block_nobody_and_are_dropped() {
    let limits = Limits {
        request: Duration::from_millis(300),
        idle: Duration::from_millis(300),
        stall: Duration::from_millis(300),
        ..Limits::default()
    };
    let served = Served::start(limits, None);
    let mut silent = served.connect();
    let mut dripping = served.connect();
    // Asks for much and reads nothing.
    let mut stalling: Vec<TcpStream> = (0..5).map(|_| served.connect()).collect();
    for stream in &mut stalling {
        for _ in 0..200 {
            stream.write_all(format!("GET {IMAGE} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
        }
    }
    dripping.write_all(b"GET / HT").unwrap();
    assert!(served.get(IMAGE, "").body == served.whole);
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    let reply = Reply::read(&mut dripping);
    assert_eq!((reply.status(), reply.text().as_str()), ("408", "the request took too long\n"));
    assert!(served.get(IMAGE, "").body == served.whole);
}

#[test]
fn hostile_bytes_end_a_connection_and_nothing_else() {
    let served = Served::plain();
    for bytes in [
        b"\x16\x03\x01\x00\xa5\x01".as_slice(),
        b"\r\n\r\n\r\n\0\0\0\0",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n",
        b"POST /images/n1/rhcos.qcow2.gz HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /\x80\xff HTTP/1.1\r\nHost: a\r\n\r\n",
        &[b'A'; 40_000],
    ] {
        let mut stream = served.connect();
        // The server may answer and close before everything is written.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
    }
    assert!(served.get(IMAGE, "").body == served.whole);
}

#[test]
fn more_connections_than_threads_wait_for_their_turn() {
    let served = Served::start(Limits { connections: 4, ..Limits::default() }, None);
    thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| assert!(served.get(IMAGE, "Connection: close\r\n").body == served.whole));
        }
    });
}

#[test]
fn tls_serves_the_same_bytes() {
    if kiln_testimage::require("tls_serves_the_same_bytes", "openssl", "openssl").is_none()
        || kiln_testimage::require("tls_serves_the_same_bytes", "curl", "curl").is_none()
    {
        return;
    }
    let folder = TempDir::new("image-server-tls");
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    kiln_testimage::run(
        std::process::Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&certificate),
    );
    let served = Served::start(Limits::default(), Some((&certificate, &key)));
    let url = format!("https://{}{IMAGE}", served.address);
    let curl = |arguments: &[&str]| {
        let mut command = std::process::Command::new("curl");
        command.args(["-sSf", "--compressed", "--cacert"]).arg(&certificate).args(arguments).arg(&url);
        kiln_testimage::run(&mut command)
    };
    assert!(curl(&[]) == served.whole);
    assert!(curl(&["-r", "650-250000"]) == served.whole[650..=250_000]);
    // A peer that does not speak TLS is let go, and the next one is served.
    let mut plain = served.connect();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let _ = plain.read_to_end(&mut Vec::new());
    assert!(curl(&[]) == served.whole);
    assert!(served.folder.path().exists());
}

#[test]
fn a_sha256_that_composing_left_out_is_taken_in_the_background() {
    use kiln_image::digest::{Sha256, hex};
    let served = Served::plain();
    let mut sum = Sha256::new();
    sum.update(&served.whole);
    let expected = sum.finish();
    let first = served.get(IMAGE, "");
    let tag = first.header("ETag").unwrap().to_owned();
    assert_eq!((first.status(), first.header("Repr-Digest")), ("200", None));
    assert!(tag.starts_with("\"pieces-"), "{tag}");
    // Whoever may not have an image cannot make the server read it.
    assert_eq!(served.get("/images/secret/rhcos.qcow2.gz", "").status(), "403");
    let known = (0..200).find_map(|_| {
        thread::sleep(Duration::from_millis(25));
        let reply = served.get(IMAGE, "Range: bytes=0-0\r\n");
        assert_eq!(reply.header("ETag"), Some(tag.as_str()), "the tag stays: downloads go on");
        reply.header("Repr-Digest").map(str::to_owned)
    });
    let stored = served.store.image(&host("n1"), &base()).unwrap().unwrap();
    assert_eq!(stored.sha256.map(|sum| hex(&sum)), Some(expected), "it is found once");
    let bytes = stored.sha256.unwrap();
    assert_eq!(known, Some(format!("sha-256=:{}:", base64::Engine::encode(&base64::prelude::BASE64_STANDARD, bytes))));
    assert_eq!(served.store.image(&host("secret"), &base()).unwrap().unwrap().sha256, None);
    // Another image of the same name has another sum.
    let record = served.store.base(&base()).unwrap().unwrap();
    let other = Assembly::from_segments(&[Segment::Base(0..1000)]);
    served.store.put_image(&host("n1"), &base(), &record, &other).unwrap();
    assert_eq!(served.store.image(&host("n1"), &base()).unwrap().unwrap().sha256, None);
    assert_eq!(served.get(IMAGE, "").header("Repr-Digest"), None);
    assert!(served.store.forget_host(&host("n1"), Some(&base())).unwrap());
    // The server may be taking the sum of what was just forgotten; then it leaves nothing behind either.
    let left = || std::fs::read_dir(served.folder.path().join("store/hosts")).unwrap().count();
    let tidied = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(25));
        left() == 1
    });
    assert!(tidied, "{} hosts are left", left());
}
