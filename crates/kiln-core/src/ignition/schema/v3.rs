//! The fields of spec 3.0 to 3.6.

use super::{Object, number, object, objects, text, texts, truth, zero};

pub(super) const CONFIG: Object = Object {
    name: "config",
    fields: &[
        object("ignition", 0, &IGNITION),
        object("kernelArguments", 3, &KERNEL_ARGUMENTS),
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
        object("proxy", 1, &PROXY),
        object("security", 0, &SECURITY),
        object("timeouts", 0, &TIMEOUTS),
    ],
};

const CONFIG_REFERENCES: Object =
    Object { name: "config references", fields: &[objects("merge", 0, &REFERENCE), object("replace", 0, &REFERENCE)] };

/// A config or certificate to fetch. Spec 3.0 knew nothing but its source and hash.
const REFERENCE: Object = Object {
    name: "reference",
    fields: &[
        zero(text("source", 0)),
        text("compression", 1),
        objects("httpHeaders", 1, &HTTP_HEADER),
        object("verification", 0, &VERIFICATION),
    ],
};

/// Contents of a file.
const CONTENTS: Object = Object {
    name: "contents",
    fields: &[
        text("source", 0),
        text("compression", 0),
        objects("httpHeaders", 1, &HTTP_HEADER),
        object("verification", 0, &VERIFICATION),
    ],
};

const VERIFICATION: Object = Object { name: "verification", fields: &[text("hash", 0)] };

const HTTP_HEADER: Object = Object { name: "HTTP header", fields: &[zero(text("name", 1)), text("value", 1)] };

const PROXY: Object =
    Object { name: "proxy", fields: &[text("httpProxy", 1), text("httpsProxy", 1), texts("noProxy", 1)] };

const SECURITY: Object = Object { name: "security section", fields: &[object("tls", 0, &TLS)] };

const TLS: Object = Object { name: "TLS section", fields: &[objects("certificateAuthorities", 0, &REFERENCE)] };

const TIMEOUTS: Object =
    Object { name: "timeouts", fields: &[number("httpResponseHeaders", 0), number("httpTotal", 0)] };

const KERNEL_ARGUMENTS: Object =
    Object { name: "kernel arguments", fields: &[texts("shouldExist", 3), texts("shouldNotExist", 3)] };

const PASSWD: Object =
    Object { name: "passwd section", fields: &[objects("users", 0, &USER), objects("groups", 0, &GROUP)] };

const USER: Object = Object {
    name: "user",
    fields: &[
        zero(text("name", 0)),
        text("gecos", 0),
        texts("groups", 0),
        text("homeDir", 0),
        truth("noCreateHome", 0),
        truth("noLogInit", 0),
        truth("noUserGroup", 0),
        text("passwordHash", 0),
        text("primaryGroup", 0),
        text("shell", 0),
        truth("shouldExist", 2),
        texts("sshAuthorizedKeys", 0),
        truth("system", 0),
        number("uid", 0),
    ],
};

const GROUP: Object = Object {
    name: "group",
    fields: &[
        zero(text("name", 0)),
        number("gid", 0),
        text("passwordHash", 0),
        truth("shouldExist", 2),
        truth("system", 0),
    ],
};

const STORAGE: Object = Object {
    name: "storage section",
    fields: &[
        objects("disks", 0, &DISK),
        objects("raid", 0, &RAID),
        objects("luks", 2, &LUKS),
        objects("filesystems", 0, &FILESYSTEM),
        objects("files", 0, &FILE),
        objects("directories", 0, &DIRECTORY),
        objects("links", 0, &LINK),
    ],
};

const DISK: Object = Object {
    name: "disk",
    fields: &[zero(text("device", 0)), objects("partitions", 0, &PARTITION), truth("wipeTable", 0)],
};

const PARTITION: Object = Object {
    name: "partition",
    fields: &[
        number("number", 0),
        text("label", 0),
        number("startMiB", 0),
        number("sizeMiB", 0),
        text("typeGuid", 0),
        text("guid", 0),
        truth("shouldExist", 0),
        truth("wipePartitionEntry", 0),
        truth("resize", 2),
    ],
};

const RAID: Object = Object {
    name: "RAID array",
    fields: &[
        zero(text("name", 0)),
        zero(text("level", 0)),
        zero(texts("devices", 0)),
        number("spares", 0),
        texts("options", 0),
    ],
};

const LUKS: Object = Object {
    name: "LUKS volume",
    fields: &[
        zero(text("name", 2)),
        text("device", 2),
        text("label", 2),
        text("uuid", 2),
        object("keyFile", 2, &CONTENTS),
        object("clevis", 2, &CLEVIS),
        object("cex", 5, &CEX),
        texts("options", 2),
        truth("wipeVolume", 2),
        truth("discard", 4),
        texts("openOptions", 4),
    ],
};

const CLEVIS: Object = Object {
    name: "clevis section",
    fields: &[object("custom", 2, &CLEVIS_CUSTOM), objects("tang", 2, &TANG), truth("tpm2", 2), number("threshold", 2)],
};

const CLEVIS_CUSTOM: Object = Object {
    name: "custom clevis pin",
    fields: &[zero(text("pin", 2)), zero(text("config", 2)), truth("needsNetwork", 2)],
};

const TANG: Object =
    Object { name: "tang server", fields: &[text("url", 2), text("thumbprint", 2), text("advertisement", 4)] };

const CEX: Object = Object { name: "CEX section", fields: &[truth("enabled", 5)] };

const FILESYSTEM: Object = Object {
    name: "file system",
    fields: &[
        zero(text("device", 0)),
        text("format", 0),
        text("label", 0),
        text("path", 0),
        text("uuid", 0),
        texts("options", 0),
        texts("mountOptions", 1),
        truth("wipeFilesystem", 0),
    ],
};

const FILE: Object = Object {
    name: "file",
    fields: &[
        zero(text("path", 0)),
        truth("overwrite", 0),
        object("user", 0, &OWNER),
        object("group", 0, &OWNER),
        number("mode", 0),
        object("contents", 0, &CONTENTS),
        objects("append", 0, &CONTENTS),
    ],
};

const DIRECTORY: Object = Object {
    name: "directory",
    fields: &[
        zero(text("path", 0)),
        truth("overwrite", 0),
        object("user", 0, &OWNER),
        object("group", 0, &OWNER),
        number("mode", 0),
    ],
};

const LINK: Object = Object {
    name: "link",
    fields: &[
        zero(text("path", 0)),
        truth("overwrite", 0),
        object("user", 0, &OWNER),
        object("group", 0, &OWNER),
        zero(text("target", 0)),
        truth("hard", 0),
    ],
};

const OWNER: Object = Object { name: "owner", fields: &[number("id", 0), text("name", 0)] };

const SYSTEMD: Object = Object { name: "systemd section", fields: &[objects("units", 0, &UNIT)] };

const UNIT: Object = Object {
    name: "unit",
    fields: &[
        zero(text("name", 0)),
        truth("enabled", 0),
        truth("mask", 0),
        text("contents", 0),
        objects("dropins", 0, &DROPIN),
    ],
};

const DROPIN: Object = Object { name: "drop-in", fields: &[zero(text("name", 0)), text("contents", 0)] };
