//! Secrets that others need: whether they are here, and whether they have the keys that will be read (rule R9).
//!
//! Contents are never looked at; the world only knows which keys there are.

use super::Rule;
use super::context::{Context, namespace};
use super::words::{SHOWN, full_name};
use crate::diagnostic::{Code, Diagnostic};
use crate::world::{Meta, Reference, Secret};

pub(super) const RULES: &[Rule] = &[missing_secrets, bmc_credentials, pull_secrets];

const DOCKER_KEY: &str = ".dockerconfigjson";
const DOCKER_TYPE: &str = "kubernetes.io/dockerconfigjson";

/// One note for all of them: a folder without any Secret is the normal case when they come from a vault.
fn missing_secrets(context: &Context, findings: &mut Vec<Diagnostic>) {
    let mut missing: Vec<(&Reference, String)> = Vec::new();
    for (reference, referrer) in bmc_references(context).chain(pull_references(context)) {
        let space = namespace(reference, referrer);
        let name = full_name(space, &reference.name);
        if !context.secrets.contains_key(&(space, reference.name.as_str())) {
            missing.push((reference, name));
        }
    }
    let Some((first, _)) = missing.first() else { return };
    let first = *first;
    let mut told = std::collections::HashSet::from([first.name.as_str()]);
    let others: Vec<&Reference> = missing.iter().map(|(other, _)| *other).collect();
    let others = others.into_iter().filter(move |other| told.insert(other.name.as_str())).take(SHOWN - 1);
    let mut names: Vec<String> = missing.into_iter().map(|(_, name)| name).collect();
    names.sort_unstable();
    names.dedup();
    let are = if names.len() == 1 { "Secret is" } else { "Secrets are" };
    let finding = Diagnostic::new(
        Code(303),
        first.at,
        format!("{} {are} not among these manifests: {}", names.len(), super::words::listed(&names)),
    )
    .cause("credentials are often kept elsewhere; without them the host stays unregistered and the image is not made")
    .help(
        "check that the hub has them, with `username` and `password` for a BMC and `.dockerconfigjson` for a pull \
            secret",
    );
    findings.push(others.fold(finding, |finding, other| finding.related(other.at, format!("Secret `{}`", other.name))));
}

fn bmc_credentials(context: &Context, findings: &mut Vec<Diagnostic>) {
    for (reference, referrer) in bmc_references(context) {
        let Some(secret) = context.secrets.get(&(namespace(reference, referrer), reference.name.as_str())) else {
            continue;
        };
        for key in ["username", "password"] {
            if has(secret, key) {
                continue;
            }
            findings.push(
                Diagnostic::new(
                    Code(304),
                    reference.at,
                    format!(
                        "Secret `{}` has no `{key}`, but host `{}` logs in to its BMC with it",
                        reference.name, referrer.id.name
                    ),
                )
                .cause(
                    "the baremetal operator reads exactly the keys `username` and `password`; without them the host \
                    stays in `registering`",
                )
                .help(format!(
                    "write:\nkind: Secret\nmetadata:\n  name: {}\nstringData:\n  username: …\n  password: …",
                    reference.name
                ))
                .related(secret.meta.at, "the Secret"),
            );
        }
    }
}

fn pull_secrets(context: &Context, findings: &mut Vec<Diagnostic>) {
    let mut told = std::collections::HashSet::new();
    for (reference, referrer) in pull_references(context) {
        let space = namespace(reference, referrer);
        let Some(secret) = context.secrets.get(&(space, reference.name.as_str())) else { continue };
        if told.insert((space, reference.name.as_str())) {
            check_pull_secret(secret, reference, findings);
        }
    }
}

fn check_pull_secret(secret: &Secret, reference: &Reference, findings: &mut Vec<Diagnostic>) {
    let name = &secret.meta.id.name;
    let shape = format!(
        "write:\nkind: Secret\nmetadata:\n  name: {name}\ntype: {DOCKER_TYPE}\nstringData:\n  {DOCKER_KEY}: \
        '{{\"auths\": {{…}}}}'"
    );
    match secret.keys.iter().find(|key| key.name.value == DOCKER_KEY) {
        None => findings.push(
            Diagnostic::new(Code(304), reference.at, format!("pull secret `{name}` has no key `{DOCKER_KEY}`"))
                .cause("the installer reads the pull secret from that key and from no other")
                .help(&shape)
                .related(secret.meta.at, "the Secret"),
        ),
        Some(key) if key.empty || key.docker_config == Some(false) => findings.push(
            Diagnostic::new(
                Code(304),
                key.name.at,
                format!("`{DOCKER_KEY}` of pull secret `{name}` is not JSON with `auths`"),
            )
            .cause("a pull secret that cannot be parsed is refused: no image is made and no release can be pulled")
            .help(&shape),
        ),
        Some(_) => {}
    }
    let nested = secret.keys.iter().find(|key| key.name.value == "type");
    match (&secret.kind, nested) {
        (Some(kind), _) if kind.value == DOCKER_TYPE => {}
        (_, Some(nested)) => findings.push(
            Diagnostic::new(
                Code(305),
                nested.name.at,
                format!(
                    "`type` of pull secret `{name}` stands inside `stringData`: the Secret is of type Opaque and has \
                    a key called `type`"
                ),
            )
            .cause(
                "indentation decides: under `stringData` it is one more entry of the Secret, not its type; whatever \
                asks for a pull secret by type passes it by",
            )
            .help(&shape),
        ),
        (kind, None) => findings.push(
            Diagnostic::new(
                Code(305),
                kind.as_ref().map_or(secret.meta.at, |kind| kind.at),
                format!(
                    "pull secret `{name}` is of type `{}`",
                    kind.as_ref().map_or("Opaque", |kind| kind.value.as_str())
                ),
            )
            .cause(format!(
                "pull secrets are of type `{DOCKER_TYPE}`; with any other type nothing checks their contents, and \
                what looks for them by type passes them by"
            ))
            .help(&shape),
        ),
    }
}

fn has(secret: &Secret, key: &str) -> bool {
    secret.keys.iter().any(|found| found.name.value == key && !found.empty)
}

fn bmc_references<'c>(context: &'c Context) -> impl Iterator<Item = (&'c Reference, &'c Meta)> {
    context.world.hosts.iter().filter_map(|host| Some((host.bmc.as_ref()?.credentials.as_ref()?, &host.meta)))
}

fn pull_references<'c>(context: &'c Context) -> impl Iterator<Item = (&'c Reference, &'c Meta)> {
    let discoveries = &context.world.discoveries;
    let discoveries =
        discoveries.iter().filter_map(|discovery| Some((discovery.pull_secret.as_ref()?, &discovery.meta)));
    let deployments = super::references::deployments(context);
    discoveries.chain(deployments.filter_map(|deployment| Some((deployment.pull_secret.as_ref()?, &deployment.meta))))
}
