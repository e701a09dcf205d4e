//! Addresses of management controllers (rule R16): the scheme decides protocol, boot method and encryption.

use super::Rule;
use super::context::Context;
use super::words::nearest;
use crate::diagnostic::{Code, Diagnostic};
use crate::world::{Bmc, Host};

pub(super) const RULES: &[Rule] = &[bmc_addresses, boot_mac_without_inspection];

/// Scheme without transport, and whether it can attach an image as virtual media.
const SCHEMES: &[(&str, bool)] = &[
    ("redfish", false),
    ("redfish-virtualmedia", true),
    ("redfish-uefihttp", true),
    ("idrac-redfish", false),
    ("idrac-virtualmedia", true),
    ("ilo5-redfish", false),
    ("ilo5-virtualmedia", true),
    ("ipmi", false),
    ("libvirt", false),
];

fn bmc_addresses(context: &Context, findings: &mut Vec<Diagnostic>) {
    for host in &context.world.hosts {
        if let Some(bmc) = &host.bmc {
            check_address(host, bmc, findings);
        }
    }
}

fn check_address(host: &Host, bmc: &Bmc, findings: &mut Vec<Diagnostic>) {
    let (address, at, name) = (bmc.address.as_str(), bmc.address.at, &host.meta.id.name);
    let Some((scheme, rest)) = address.split_once("://") else {
        // `192.0.2.1` alone means IPMI.
        if !host.meta.id.kind.eq("BareMetalHost") || address.contains('/') || address.is_empty() {
            findings.push(
                Diagnostic::new(Code(321), at, format!("the BMC address `{address}` of host `{name}` has no scheme"))
                    .cause(
                        "the scheme before `://` says how to talk to the controller; an address without one means \
                        IPMI and cannot have a path",
                    )
                    .help(format!(
                        "write, for example:\nspec:\n  bmc:\n    address: redfish-virtualmedia+https://{}",
                        if address.is_empty() { "192.0.2.1/redfish/v1/Systems/1" } else { address.trim_matches('/') }
                    )),
            );
        }
        return;
    };
    let (base, transport) = scheme.split_once('+').map_or((scheme, None), |(base, transport)| (base, Some(transport)));
    let known = SCHEMES.iter().find(|(known, _)| *known == base);
    let Some((_, virtual_media)) = known.filter(|_| matches!(transport, None | Some("http" | "https"))) else {
        findings.push(
            Diagnostic::new(
                Code(321),
                at,
                format!("host `{name}` has a BMC address with the unknown scheme `{scheme}`"),
            )
            .cause(
                "the baremetal operator knows redfish, redfish-virtualmedia, redfish-uefihttp, idrac-redfish, \
                idrac-virtualmedia, ilo5-redfish, ilo5-virtualmedia, ipmi and libvirt, each but the last two also \
                with +http or +https; any other address is a registration error",
            )
            .help(format!(
                "write, for example:\nspec:\n  bmc:\n    address: {}://{rest}",
                repaired_scheme(base, transport)
            )),
        );
        return;
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let redfish = !matches!(base, "ipmi" | "libvirt");
    if redfish && transport.is_none() {
        check_implied_https(host, bmc, base, authority, path, findings);
    }
    if transport == Some("http") && bmc.insecure.as_ref().is_some_and(|insecure| insecure.value) {
        findings.push(
            Diagnostic::new(
                Code(324),
                bmc.insecure.as_ref().map(|insecure| insecure.at),
                format!("host `{name}` switches certificate verification off, but speaks plain HTTP to its BMC"),
            )
            .cause("over `+http` there is no certificate; user name and password travel in clear text")
            .help(format!(
                "remove `disableCertificateVerification`, or write `{base}+https://{rest}` if the controller can"
            )),
        );
    }
    if redfish && path.contains("/Managers/") {
        findings.push(
            Diagnostic::new(
                Code(325),
                at,
                format!("the BMC address of host `{name}` leads to a manager, not to a system"),
            )
            .cause(
                "power, boot order and virtual media are found from the system; with a manager's path registration \
                ends with `attribute Boot is missing`",
            )
            .help(format!(
                "write the path of the system, as listed by the controller under /redfish/v1/Systems; \
                probably:\nspec:\n  bmc:\n    address: {scheme}://{authority}/{}",
                path.replace("/Managers/", "/Systems/").replace("/iDRAC.", "/System.")
            )),
        );
    }
    if !virtual_media && host.discovery.is_some() {
        let better = match base {
            "idrac-redfish" => "idrac-virtualmedia",
            "ilo5-redfish" => "ilo5-virtualmedia",
            _ => "redfish-virtualmedia",
        };
        findings.push(
            Diagnostic::new(
                Code(323),
                at,
                format!("host `{name}` boots a discovery image, but `{base}` cannot attach one"),
            )
            .cause(
                "only the virtual-media schemes hand an ISO to the controller; the others boot over PXE and need a \
                provisioning network",
            )
            .help(format!(
                "if the controller has virtual media, write:\nspec:\n  bmc:\n    address: {better}{}://{authority}/{}",
                transport.map(|transport| format!("+{transport}")).unwrap_or_default(),
                if path.is_empty() { "redfish/v1/Systems/1" } else { path }
            )),
        );
    }
}

/// The scheme that was meant: only what is wrong changes.
fn repaired_scheme(base: &str, transport: Option<&str>) -> String {
    let is_known = SCHEMES.iter().any(|(known, _)| *known == base);
    let meant = Some(base).filter(|_| is_known).or_else(|| nearest(base, SCHEMES.iter().map(|(name, _)| *name)));
    let transport = match (meant, transport) {
        (None, _) if base == "http" => "+http",
        (None, None) => "+https",
        (Some(_), None) => "",
        (_, Some("http")) => "+http",
        (Some("ipmi" | "libvirt"), Some(_)) => "",
        (_, Some(_)) => "+https",
    };
    format!("{}{transport}", meant.unwrap_or("redfish-virtualmedia"))
}

fn check_implied_https(
    host: &Host,
    bmc: &Bmc,
    base: &str,
    authority: &str,
    path: &str,
    findings: &mut Vec<Diagnostic>,
) {
    let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    let Some(port) = port.filter(|port| !matches!(port, 443 | 8443)) else { return };
    findings.push(
        Diagnostic::new(
            Code(322),
            bmc.address.at,
            format!(
                "host `{}` speaks HTTPS to port {port} of its BMC, because `{base}://` means HTTPS",
                host.meta.id.name
            ),
        )
        .cause(
            "a scheme without `+http` is encrypted; emulators and some controllers listen on such a port without TLS, \
            and then registration fails with a TLS error",
        )
        .help(format!(
            "say which one you mean:\nspec:\n  bmc:\n    address: {base}+http://{authority}/{path}\nor:\n    address: \
            {base}+https://{authority}/{path}"
        )),
    );
}

fn boot_mac_without_inspection(context: &Context, findings: &mut Vec<Diagnostic>) {
    for host in &context.world.hosts {
        // One that is written but cannot be read was reported by the reader.
        let written = || context.written(&host.meta.id)?.path(&["spec", "bootMACAddress"])?.as_str();
        let missing = host.boot_mac.is_none() && written().is_none_or(str::is_empty);
        if host.inspection_disabled && missing && host.meta.id.kind == "BareMetalHost" {
            findings.push(
                Diagnostic::new(
                    Code(326),
                    host.meta.at,
                    format!("host `{}` switches inspection off and has no boot MAC address", host.meta.id.name),
                )
                .cause(
                    "the agent that boots is matched to its host by MAC address; without inspection nobody else can \
                    tell it",
                )
                .help("write:\nspec:\n  bootMACAddress: \"52:54:00:…\""),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::repaired_scheme;

    #[test]
    fn a_repaired_scheme_keeps_what_was_right() {
        for (base, transport, expected) in [
            ("redfish-virtual-media", Some("https"), "redfish-virtualmedia+https"),
            ("redfish-virtual-media", None, "redfish-virtualmedia"),
            ("idrac-virtualmedia", Some("htps"), "idrac-virtualmedia+https"),
            ("https", None, "redfish-virtualmedia+https"),
            ("http", None, "redfish-virtualmedia+http"),
        ] {
            assert_eq!(repaired_scheme(base, transport), expected, "{base}");
        }
    }
}
