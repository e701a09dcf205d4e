//! User-data: how a machine of each platform gets its pointer config, how large that may be, and the command that makes one.
//!
//! Commands name files and never their contents: arguments are seen by every user of a machine. What nobody but the user
//! can know (a flavor, a network) stands in capitals and is listed.

use std::fmt;
use std::str::FromStr;

use crate::diagnostic::{Code, Diagnostic};

/// Where a machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Platform {
    /// Amazon EC2.
    Aws,
    /// Microsoft Azure.
    Azure,
    /// Google Compute Engine.
    Gcp,
    /// Hetzner Cloud.
    Hetzner,
    /// IBM Cloud VPC.
    IbmCloud,
    /// Virtual machines on Kubernetes.
    KubeVirt,
    /// A machine that is installed with coreos-installer.
    Metal,
    /// OpenStack Nova.
    OpenStack,
    /// A virtual machine of your own.
    Qemu,
    /// vSphere.
    VmWare,
}

/// A word that names no platform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no platform Kiln knows; there are {known}", known = Platform::ALL.map(Platform::name).join(", "))]
pub struct UnknownPlatform(String);

/// How many bytes a platform takes, and what of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// Of the text itself.
    Plain(usize),
    /// Of the text in base64, as the platform's own API carries it.
    Encoded(usize),
    /// The platform has none that a pointer could meet.
    None,
}

impl Platform {
    /// Every platform, by name.
    pub const ALL: [Platform; 10] = [
        Platform::Aws,
        Platform::Azure,
        Platform::Gcp,
        Platform::Hetzner,
        Platform::IbmCloud,
        Platform::KubeVirt,
        Platform::Metal,
        Platform::OpenStack,
        Platform::Qemu,
        Platform::VmWare,
    ];

    /// The name Ignition has for it.
    pub const fn name(self) -> &'static str {
        match self {
            Platform::Aws => "aws",
            Platform::Azure => "azure",
            Platform::Gcp => "gcp",
            Platform::Hetzner => "hetzner",
            Platform::IbmCloud => "ibmcloud",
            Platform::KubeVirt => "kubevirt",
            Platform::Metal => "metal",
            Platform::OpenStack => "openstack",
            Platform::Qemu => "qemu",
            Platform::VmWare => "vmware",
        }
    }

    const fn limit(self) -> Limit {
        match self {
            Platform::Aws => Limit::Plain(16_384),
            Platform::Azure | Platform::OpenStack => Limit::Encoded(65_535),
            Platform::Gcp => Limit::Plain(262_144),
            Platform::Hetzner => Limit::Plain(32_768),
            Platform::IbmCloud => Limit::Plain(65_536),
            Platform::KubeVirt => Limit::Plain(1_048_576),
            Platform::VmWare => Limit::Encoded(65_536),
            Platform::Metal | Platform::Qemu => Limit::None,
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Platform {
    type Err = UnknownPlatform;
    fn from_str(name: &str) -> Result<Self, UnknownPlatform> {
        Platform::ALL
            .into_iter()
            .find(|platform| platform.name() == name)
            .ok_or_else(|| UnknownPlatform(name.to_owned()))
    }
}

/// What is wrong with user-data of this size, if anything.
pub fn check_size(platform: Platform, user_data: &str) -> Option<Diagnostic> {
    let plain = user_data.len();
    let (size, most, form) = match platform.limit() {
        Limit::None => return None,
        Limit::Plain(most) => (plain, most, ""),
        Limit::Encoded(most) => (plain.div_ceil(3) * 4, most, " in base64"),
    };
    (size > most).then(|| {
        Diagnostic::new(Code(473), None, format!("the user-data has {size} bytes{form}; {platform} takes {most}"))
            .cause("a platform cuts or refuses larger user-data, and Ignition finds half a config or none")
            .help("trust fewer authorities in the pointer (`--ca` with the one that signed the hub's certificate), or put the config on a server and point at it with `kiln ignition pointer --source URL`")
    })
}

/// Machines to be made with the same user-data.
#[derive(Debug, Clone, Copy)]
pub struct Machines<'a> {
    /// Their names.
    pub names: &'a [String],
    /// The file with the user-data.
    pub file: &'a str,
    /// The image they boot.
    pub image: Option<&'a str>,
}

/// Commands that make machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create {
    /// One command each.
    pub commands: Vec<String>,
    /// Words in capitals that only the user can fill in.
    pub unknown: Vec<&'static str>,
}

/// The commands for these machines.
pub fn render_create(platform: Platform, machines: Machines<'_>) -> Create {
    let Machines { names, file, image } = machines;
    let (file, image_word) = (quote(file), image.map_or("IMAGE".into(), quote));
    let each = |command: &dyn Fn(&str) -> String| names.iter().map(|name| command(&quote(name))).collect::<Vec<_>>();
    let (commands, mut unknown): (Vec<String>, Vec<&'static str>) = match platform {
        Platform::Gcp => {
            let all: Vec<String> = names.iter().map(|name| quote(name)).collect();
            let command = format!(
                "gcloud compute instances create {} \\\n  --image={image_word} \\\n  --metadata-from-file user-data={file}",
                all.join(" ")
            );
            (vec![command], Vec::new())
        }
        Platform::OpenStack => (
            each(&|name| {
                format!(
                    "openstack server create --image {image_word} --flavor FLAVOR --network NETWORK --user-data {file} {name}"
                )
            }),
            vec!["FLAVOR", "NETWORK"],
        ),
        Platform::Aws => (
            each(&|name| {
                format!(
                    "aws ec2 run-instances --image-id {image_word} --instance-type TYPE --user-data file://{file} --tag-specifications 'ResourceType=instance,Tags=[{{Key=Name,Value={name}}}]'"
                )
            }),
            vec!["TYPE"],
        ),
        Platform::Azure => (
            each(&|name| {
                format!(
                    "az vm create --resource-group GROUP --name {name} --image {image_word} --admin-username core --ssh-key-values SSH_KEY_FILE --custom-data {file}"
                )
            }),
            vec!["GROUP", "SSH_KEY_FILE"],
        ),
        Platform::Hetzner => (
            each(&|name| {
                format!(
                    "hcloud server create --name {name} --type TYPE --image {image_word} --user-data-from-file {file}"
                )
            }),
            vec!["TYPE"],
        ),
        Platform::IbmCloud => (
            each(&|name| {
                format!(
                    "ibmcloud is instance-create {name} VPC ZONE PROFILE SUBNET --image {image_word} --user-data @{file}"
                )
            }),
            vec!["VPC", "ZONE", "PROFILE", "SUBNET"],
        ),
        Platform::KubeVirt => (
            each(&|name| format!("kubectl create secret generic {name}-user-data --from-file=userdata={file}")),
            Vec::new(),
        ),
        Platform::VmWare => (
            each(&|name| {
                format!(
                    "base64 -w0 {file} > {file}.b64 && chmod 600 {file}.b64 && govc vm.change -vm {name} -e guestinfo.ignition.config.data.encoding=base64 -f guestinfo.ignition.config.data={file}.b64"
                )
            }),
            Vec::new(),
        ),
        Platform::Qemu => (
            each(&|name| {
                format!(
                    "qemu-system-x86_64 -name {name} -machine accel=kvm -cpu host -m 4096 -nographic -drive if=virtio,file={image_word} -fw_cfg name=opt/com.coreos/config,file={file}"
                )
            }),
            Vec::new(),
        ),
        Platform::Metal => (vec![format!("coreos-installer install /dev/DISK --ignition-file {file}")], vec!["DISK"]),
    };
    let has_image = commands.iter().any(|command| command.split([' ', '=']).any(|word| word == "IMAGE"));
    if image.is_none() && has_image {
        unknown.insert(0, "IMAGE");
    }
    Create { commands, unknown }
}

/// A pattern without a place for the number, or with two.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` must have `{{}}` exactly once where the number goes, as in worker-{{}}")]
pub struct PatternError(String);

/// `worker-{}` for the numbers from one.
pub fn names_from(pattern: &str, count: usize) -> Result<Vec<String>, PatternError> {
    match pattern.split("{}").collect::<Vec<_>>()[..] {
        [before, after] => Ok((1..=count).map(|number| format!("{before}{number}{after}")).collect()),
        [only] if count == 1 && !only.is_empty() => Ok(vec![only.to_owned()]),
        _ => Err(PatternError(pattern.to_owned())),
    }
}

/// As a shell reads it as one word.
fn quote(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:@%+,".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_command_for_google_is_the_one_of_the_hosted_workers() {
        let names = names(&["hypershift-worker-1", "hypershift-worker-2"]);
        let machines =
            Machines { names: &names, file: "ignition-config.json", image: Some("redhat-coreos--x86-64-20250826") };
        let expected = "gcloud compute instances create hypershift-worker-1 hypershift-worker-2 \\\n  --image=redhat-coreos--x86-64-20250826 \\\n  --metadata-from-file user-data=ignition-config.json";
        assert_eq!(
            render_create(Platform::Gcp, machines),
            Create { commands: vec![expected.into()], unknown: Vec::new() }
        );
    }

    #[test]
    fn every_platform_has_a_command_that_names_the_file_and_what_is_not_known() {
        let names = names(&["w 1"]);
        for platform in Platform::ALL {
            let create = render_create(platform, Machines { names: &names, file: "/tmp/a b.ign", image: None });
            for command in &create.commands {
                assert!(command.contains("'/tmp/a b.ign'"), "{command}");
                for word in &create.unknown {
                    assert!(command.contains(word), "{word} in {command}");
                }
            }
            assert_eq!(platform.name().parse(), Ok(platform));
        }
        let create = render_create(Platform::OpenStack, Machines { names: &names, file: "f", image: None });
        assert_eq!(create.unknown, ["IMAGE", "FLAVOR", "NETWORK"]);
        let error = "s390".parse::<Platform>().unwrap_err().to_string();
        assert!(error.starts_with("`s390` is no platform Kiln knows; there are aws, azure, gcp"), "{error}");
    }

    #[test]
    fn user_data_that_a_platform_would_cut_is_refused() {
        let sizes = [
            (Platform::Aws, 16_384, 16_385, "KLN0473 the user-data has 16385 bytes; aws takes 16384"),
            (Platform::Gcp, 262_144, 262_145, "KLN0473 the user-data has 262145 bytes; gcp takes 262144"),
            (
                Platform::OpenStack,
                49_149,
                49_152,
                "KLN0473 the user-data has 65536 bytes in base64; openstack takes 65535",
            ),
        ];
        for (platform, fits, large, expected) in sizes {
            assert_eq!(check_size(platform, &"x".repeat(fits)), None, "{platform}");
            let finding = check_size(platform, &"x".repeat(large)).unwrap();
            assert_eq!(format!("{} {}", finding.code, finding.message), expected);
        }
        assert_eq!(check_size(Platform::Metal, &"x".repeat(10_000_000)), None);
    }

    #[test]
    fn names_come_from_a_pattern() {
        assert_eq!(names_from("worker-{}", 3), Ok(names(&["worker-1", "worker-2", "worker-3"])));
        assert_eq!(names_from("only", 1), Ok(names(&["only"])));
        let error = names_from("worker", 2).unwrap_err();
        assert_eq!(error.to_string(), "`worker` must have `{}` exactly once where the number goes, as in worker-{}");
    }
}
