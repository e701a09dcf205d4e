//! The fields of spec 2.0 to 2.4, which MachineConfigs of OpenShift 4.1 to 4.5 were written in.

use super::{Object, number, object, objects, text, texts, truth};

pub(super) const CONFIG: Object = Object {
    name: "config",
    fields: &[
        object("ignition", 0, &IGNITION),
        object("networkd", 0, &NETWORKD),
        object("passwd", 0, &PASSWD),
        object("storage", 0, &STORAGE),
        object("systemd", 0, &SYSTEMD),
    ],
};

const IGNITION: Object = Object {
    name: "ignition section",
    fields: &[
        text("version", 0),
        object("config", 0, &CONFIG_REFERENCES),
        object("proxy", 4, &PROXY),
        object("security", 2, &SECURITY),
        object("timeouts", 1, &TIMEOUTS),
    ],
};

const CONFIG_REFERENCES: Object =
    Object { name: "config references", fields: &[objects("append", 0, &REFERENCE), object("replace", 0, &REFERENCE)] };

const REFERENCE: Object = Object {
    name: "reference",
    fields: &[text("source", 0), objects("httpHeaders", 4, &HTTP_HEADER), object("verification", 0, &VERIFICATION)],
};

const CONTENTS: Object = Object {
    name: "contents",
    fields: &[
        text("source", 0),
        text("compression", 0),
        objects("httpHeaders", 4, &HTTP_HEADER),
        object("verification", 0, &VERIFICATION),
    ],
};

const VERIFICATION: Object = Object { name: "verification", fields: &[text("hash", 0)] };

const HTTP_HEADER: Object = Object { name: "HTTP header", fields: &[text("name", 4), text("value", 4)] };

const PROXY: Object =
    Object { name: "proxy", fields: &[text("httpProxy", 4), text("httpsProxy", 4), texts("noProxy", 4)] };

const SECURITY: Object = Object { name: "security section", fields: &[object("tls", 2, &TLS)] };

const TLS: Object = Object { name: "TLS section", fields: &[objects("certificateAuthorities", 2, &REFERENCE)] };

const TIMEOUTS: Object =
    Object { name: "timeouts", fields: &[number("httpResponseHeaders", 1), number("httpTotal", 1)] };

const NETWORKD: Object = Object { name: "networkd section", fields: &[objects("units", 0, &NETWORKD_UNIT)] };

const NETWORKD_UNIT: Object =
    Object { name: "networkd unit", fields: &[text("name", 0), text("contents", 0), objects("dropins", 2, &DROPIN)] };

const PASSWD: Object =
    Object { name: "passwd section", fields: &[objects("users", 0, &USER), objects("groups", 0, &GROUP)] };

const USER: Object = Object {
    name: "user",
    fields: &[
        text("name", 0),
        text("passwordHash", 0),
        texts("sshAuthorizedKeys", 0),
        object("create", 0, &USER_CREATE),
        text("gecos", 1),
        texts("groups", 1),
        text("homeDir", 1),
        truth("noCreateHome", 1),
        truth("noLogInit", 1),
        truth("noUserGroup", 1),
        text("primaryGroup", 1),
        text("shell", 1),
        truth("system", 1),
        number("uid", 1),
    ],
};

const USER_CREATE: Object = Object {
    name: "user creation",
    fields: &[
        text("gecos", 0),
        texts("groups", 0),
        text("homeDir", 0),
        truth("noCreateHome", 0),
        truth("noLogInit", 0),
        truth("noUserGroup", 0),
        text("primaryGroup", 0),
        text("shell", 0),
        truth("system", 0),
        number("uid", 0),
    ],
};

const GROUP: Object =
    Object { name: "group", fields: &[text("name", 0), number("gid", 0), text("passwordHash", 0), truth("system", 0)] };

const STORAGE: Object = Object {
    name: "storage section",
    fields: &[
        objects("disks", 0, &DISK),
        objects("raid", 0, &RAID),
        objects("filesystems", 0, &FILESYSTEM),
        objects("files", 0, &FILE),
        objects("directories", 1, &DIRECTORY),
        objects("links", 1, &LINK),
    ],
};

const DISK: Object =
    Object { name: "disk", fields: &[text("device", 0), objects("partitions", 0, &PARTITION), truth("wipeTable", 0)] };

const PARTITION: Object = Object {
    name: "partition",
    fields: &[
        number("number", 0),
        text("label", 0),
        number("start", 0),
        number("size", 0),
        number("startMiB", 3),
        number("sizeMiB", 3),
        text("typeGuid", 0),
        text("guid", 0),
        truth("shouldExist", 3),
        truth("wipePartitionEntry", 3),
    ],
};

const RAID: Object = Object {
    name: "RAID array",
    fields: &[text("name", 0), text("level", 0), texts("devices", 0), number("spares", 0), texts("options", 2)],
};

const FILESYSTEM: Object =
    Object { name: "file system", fields: &[text("name", 0), object("mount", 0, &MOUNT), text("path", 0)] };

const MOUNT: Object = Object {
    name: "mount",
    fields: &[
        text("device", 0),
        text("format", 0),
        text("label", 1),
        text("uuid", 1),
        texts("options", 1),
        truth("wipeFilesystem", 1),
        object("create", 0, &CREATE),
    ],
};

const CREATE: Object = Object { name: "file system creation", fields: &[truth("force", 0), texts("options", 0)] };

const FILE: Object = Object {
    name: "file",
    fields: &[
        text("filesystem", 0),
        text("path", 0),
        truth("overwrite", 2),
        truth("append", 2),
        object("user", 0, &OWNER),
        object("group", 0, &OWNER),
        number("mode", 0),
        object("contents", 0, &CONTENTS),
    ],
};

const DIRECTORY: Object = Object {
    name: "directory",
    fields: &[
        text("filesystem", 1),
        text("path", 1),
        truth("overwrite", 2),
        object("user", 1, &OWNER),
        object("group", 1, &OWNER),
        number("mode", 1),
    ],
};

const LINK: Object = Object {
    name: "link",
    fields: &[
        text("filesystem", 1),
        text("path", 1),
        truth("overwrite", 2),
        object("user", 1, &OWNER),
        object("group", 1, &OWNER),
        text("target", 1),
        truth("hard", 1),
    ],
};

const OWNER: Object = Object { name: "owner", fields: &[number("id", 0), text("name", 1)] };

const SYSTEMD: Object = Object { name: "systemd section", fields: &[objects("units", 0, &UNIT)] };

const UNIT: Object = Object {
    name: "unit",
    fields: &[
        text("name", 0),
        truth("enable", 0),
        truth("enabled", 1),
        truth("mask", 0),
        text("contents", 0),
        objects("dropins", 0, &DROPIN),
    ],
};

const DROPIN: Object = Object { name: "drop-in", fields: &[text("name", 0), text("contents", 0)] };
