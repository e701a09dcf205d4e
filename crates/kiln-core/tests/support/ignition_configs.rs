//! Generated Ignition configs: every field of specs 3.0 to 3.3, valid one by one, with few names so that two of them
//! speak of the same things.

use serde_json::{Map, Value, json};

/// A small generator of numbers: same seed, same configs.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Some of `choices`, each at most once, in random order.
    fn some<'a>(&mut self, choices: &[&'a str]) -> Vec<&'a str> {
        let mut chosen: Vec<&str> = choices.iter().copied().filter(|_| self.chance(50)).collect();
        for index in (1..chosen.len()).rev() {
            chosen.swap(index, self.below(index as u64 + 1) as usize);
        }
        chosen
    }
}

/// A config in spec 3.`minor`.
pub fn config(random: &mut Random, minor: u64) -> Value {
    let mut root = Map::new();
    root.insert("ignition".into(), ignition(random, minor));
    let mut storage = Map::new();
    nodes(random, minor, &mut storage);
    disks(random, minor, &mut storage);
    root.insert("storage".into(), storage.into());
    root.insert("systemd".into(), json!({ "units": units(random) }));
    root.insert("passwd".into(), passwd(random, minor));
    if minor >= 3 {
        let mut arguments: Vec<&str> = random.some(&["quiet", "nosmt", "ip=dhcp", "console=tty0"]);
        let absent = arguments.split_off(arguments.len() / 2);
        root.insert("kernelArguments".into(), json!({ "shouldExist": arguments, "shouldNotExist": absent }));
    }
    root.into()
}

fn maybe(random: &mut Random, object: &mut Map<String, Value>, key: &str, value: impl FnOnce(&mut Random) -> Value) {
    if random.chance(50) {
        let value = value(random);
        object.insert(key.into(), value);
    }
}

fn ignition(random: &mut Random, minor: u64) -> Value {
    let mut ignition = Map::new();
    ignition.insert("version".into(), format!("3.{minor}.0").into());
    let mut timeouts = Map::new();
    maybe(random, &mut timeouts, "httpTotal", |random| random.below(90).into());
    maybe(random, &mut timeouts, "httpResponseHeaders", |random| random.below(90).into());
    ignition.insert("timeouts".into(), timeouts.into());
    if minor >= 1 && random.chance(50) {
        let mut proxy = Map::new();
        proxy.insert("httpProxy".into(), random.pick(&["http://p1/", "http://p2/"]).into());
        maybe(random, &mut proxy, "httpsProxy", |random| random.pick(&["https://p1/", "https://p2/"]).into());
        maybe(random, &mut proxy, "noProxy", |random| random.some(&["a.example", "b.example", "10.0.0.0/8"]).into());
        ignition.insert("proxy".into(), proxy.into());
    }
    ignition.into()
}

fn resource(random: &mut Random, minor: u64) -> Value {
    let mut resource = Map::new();
    let source = random.pick(&["data:,a", "data:,b", "https://a.example/x", "https://b.example/y", ""]);
    resource.insert("source".into(), source.into());
    maybe(random, &mut resource, "compression", |random| random.pick(&["", "gzip"]).into());
    maybe(random, &mut resource, "verification", |random| {
        let digit = random.pick(&["0", "1"]);
        json!({ "hash": format!("sha512-{}", digit.repeat(128)) })
    });
    if minor >= 1 && source.starts_with("https") {
        maybe(random, &mut resource, "httpHeaders", |random| {
            let names = random.some(&["Authorization", "X-One", "X-Two"]);
            let header = |name: &str| match random.below(4) {
                0 => json!({ "name": name, "value": null }),
                number => json!({ "name": name, "value": format!("v{number}") }),
            };
            names.into_iter().map(header).collect()
        });
    }
    resource.into()
}

fn nodes(random: &mut Random, minor: u64, storage: &mut Map<String, Value>) {
    let [mut files, mut directories, mut links] = [(); 3].map(|()| Vec::<Value>::new());
    for path in random.some(&["/etc/a", "/etc/b", "/etc/c", "/etc/d", "/etc/e", "/opt/f"]) {
        let mut node = Map::new();
        node.insert("path".into(), path.into());
        for owner in ["user", "group"] {
            maybe(random, &mut node, owner, |random| {
                if random.chance(50) { json!({ "id": random.below(3) }) } else { json!({ "name": "core" }) }
            });
        }
        match random.below(4) {
            0 => {
                maybe(random, &mut node, "mode", |_| 493.into());
                directories.push(node.into());
            }
            1 => {
                node.insert("target".into(), random.pick(&["/x", "../y"]).into());
                maybe(random, &mut node, "hard", |random| random.chance(50).into());
                links.push(node.into());
            }
            _ => {
                maybe(random, &mut node, "mode", |random| if random.chance(50) { 420.into() } else { 384.into() });
                if random.chance(70) {
                    node.insert("contents".into(), resource(random, minor));
                    maybe(random, &mut node, "overwrite", |random| random.chance(50).into());
                }
                if random.chance(30) {
                    let pieces: Vec<Value> = (0..=random.below(2)).map(|_| resource(random, minor)).collect();
                    node.insert("append".into(), pieces.into());
                }
                files.push(node.into());
            }
        }
    }
    storage.insert("files".into(), files.into());
    storage.insert("directories".into(), directories.into());
    storage.insert("links".into(), links.into());
}

fn disks(random: &mut Random, minor: u64, storage: &mut Map<String, Value>) {
    let disks = random.some(&["/dev/sda", "/dev/sdb"]).into_iter().map(|device| {
        let numbered = random.some(&["1", "2", "3"]).into_iter().map(|number| {
            let mut partition = Map::new();
            partition.insert("number".into(), number.parse::<u64>().unwrap().into());
            maybe(random, &mut partition, "wipePartitionEntry", |random| random.chance(50).into());
            maybe(random, &mut partition, "shouldExist", |_| true.into());
            Value::from(partition)
        });
        let mut partitions: Vec<Value> = numbered.collect();
        partitions.extend(random.some(&["data", "log"]).into_iter().map(|label| {
            let mut partition = json!({ "label": label });
            if minor >= 2 && random.chance(30) {
                partition["resize"] = false.into();
            }
            partition
        }));
        json!({ "device": device, "wipeTable": random.chance(50), "partitions": partitions })
    });
    let disks: Vec<Value> = disks.collect();
    storage.insert("disks".into(), disks.into());
    let arrays = random.some(&["md0", "md1"]).into_iter().map(|name| {
        json!({ "name": name, "level": random.pick(&["raid1", "raid5"]), "options": random.some(&["--a", "--b"]),
            "devices": [random.pick(&["/dev/sdc", "/dev/sdd", "/dev/sde"]), "/dev/sdf"],
            "spares": random.below(2) })
    });
    let arrays: Vec<Value> = arrays.collect();
    storage.insert("raid".into(), arrays.into());
    let filesystems = random.some(&["/dev/sdg1", "/dev/sdg2"]).into_iter().map(|device| {
        let mut filesystem = Map::new();
        filesystem.insert("device".into(), device.into());
        filesystem.insert("format".into(), random.pick(&["ext4", "xfs"]).into());
        maybe(random, &mut filesystem, "path", |_| format!("/mnt{device}").into());
        maybe(random, &mut filesystem, "label", |random| random.pick(&["one", "two"]).into());
        maybe(random, &mut filesystem, "options", |random| random.some(&["-a", "-b"]).into());
        maybe(random, &mut filesystem, "wipeFilesystem", |random| random.chance(50).into());
        if minor >= 1 {
            maybe(random, &mut filesystem, "mountOptions", |random| random.some(&["noatime", "ro"]).into());
        }
        Value::from(filesystem)
    });
    let filesystems: Vec<Value> = filesystems.collect();
    storage.insert("filesystems".into(), filesystems.into());
    if minor >= 2 {
        let volumes = random.some(&["root", "data"]).into_iter().map(|name| {
            let mut volume = Map::new();
            volume.insert("name".into(), name.into());
            volume.insert("device".into(), random.pick(&["/dev/sdh", "/dev/sdi"]).into());
            maybe(random, &mut volume, "options", |random| random.some(&["--x", "--y"]).into());
            maybe(random, &mut volume, "keyFile", |random| json!({ "source": random.pick(&["data:,k1", "data:,k2"]) }));
            maybe(random, &mut volume, "wipeVolume", |random| random.chance(50).into());
            maybe(random, &mut volume, "clevis", |random| {
                let urls = random.some(&["http://t1", "http://t2"]);
                let tang: Vec<Value> = urls
                    .into_iter()
                    .map(|url| json!({ "url": url, "thumbprint": random.pick(&["one", "two"]) }))
                    .collect();
                json!({ "tpm2": random.chance(50), "tang": tang, "threshold": random.below(2) + 1 })
            });
            Value::from(volume)
        });
        let volumes: Vec<Value> = volumes.collect();
        storage.insert("luks".into(), volumes.into());
    }
}

fn units(random: &mut Random) -> Vec<Value> {
    let names = random.some(&["a.service", "b.service", "c.mount"]);
    let unit = |name: &str| {
        let mut unit = Map::new();
        unit.insert("name".into(), name.into());
        maybe(random, &mut unit, "enabled", |random| random.chance(50).into());
        maybe(random, &mut unit, "mask", |random| random.chance(50).into());
        maybe(random, &mut unit, "contents", |random| {
            format!("[Unit]\nDescription={}\n[Install]\nWantedBy=x.target\n", random.pick(&["one", "two"])).into()
        });
        let dropins = random
            .some(&["10-a.conf", "20-b.conf"])
            .into_iter()
            .map(|name| json!({ "name": name, "contents": format!("[Unit]\nDescription={}\n", random.below(3)) }));
        let dropins: Vec<Value> = dropins.collect();
        unit.insert("dropins".into(), dropins.into());
        Value::from(unit)
    };
    names.into_iter().map(unit).collect()
}

fn passwd(random: &mut Random, minor: u64) -> Value {
    let users = random.some(&["core", "admin"]).into_iter().map(|name| {
        let mut user = Map::new();
        user.insert("name".into(), name.into());
        maybe(random, &mut user, "uid", |random| random.below(2000).into());
        maybe(random, &mut user, "gecos", |random| random.pick(&["", "Somebody"]).into());
        maybe(random, &mut user, "passwordHash", |random| random.pick(&["$6$a", "$6$b"]).into());
        maybe(random, &mut user, "groups", |random| random.some(&["wheel", "sudo", "adm"]).into());
        maybe(random, &mut user, "sshAuthorizedKeys", |random| {
            random.some(&["ssh-rsa A", "ssh-rsa B", "ssh-rsa C"]).into()
        });
        if minor >= 2 {
            maybe(random, &mut user, "shouldExist", |random| random.chance(50).into());
        }
        Value::from(user)
    });
    let users: Vec<Value> = users.collect();
    let groups =
        random.some(&["wheel", "adm"]).into_iter().map(|name| json!({ "name": name, "gid": random.below(500) }));
    let groups: Vec<Value> = groups.collect();
    json!({ "users": users, "groups": groups })
}
