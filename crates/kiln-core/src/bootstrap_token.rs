//! Bootstrap tokens: the user a host has of its own until it has a certificate.
//!
//! A kubelet without a certificate shows the token of its bootstrap kubeconfig. Where all hosts share that token, a request
//! does not say which of them asks. A [`BootstrapToken`] is Kubernetes' own kind (`id.secret`, user `system:bootstrap:id`),
//! made of a code over whom it is for: whoever has the hub's key makes the same one, so that none is stored in the hub.
//! [`take_credentials`] and [`render_kubeconfig`] put it in the place of the one in the pool's kubeconfig.
//!
//! Not here: the key and the code, see `kiln::hub::node::beacon`; the Secret on the cluster, see `kiln::hub::approval`.

use serde_json::{Value, json};

use crate::beacon_token::Bearer;
use crate::boot_token::TokenHash;
use crate::document::yaml::parse_yaml;
use crate::source::SourceMap;

/// Where bootstrap kubeconfigs lie: the machine-config-operator's and kubeadm's.
pub const PATHS: [&str; 2] = ["/etc/kubernetes/kubeconfig", "/etc/kubernetes/bootstrap-kubelet.conf"];
/// What begins the name of a bootstrap token's user.
pub const USER: &str = "system:bootstrap:";
/// The group of hosts with a token of their own. Not kubeadm's: what that group asks for is approved unseen.
pub const GROUP: &str = "system:bootstrappers:kiln";
/// The letters both parts are made of.
const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
/// How many an id has.
const ID: usize = 6;
/// How many a secret has: 82 bits.
const SECRET: usize = 16;

/// A token. It prints without its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken {
    id: String,
    secret: String,
}

impl std::fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BootstrapToken").field("id", &self.id).finish_non_exhaustive()
    }
}

impl BootstrapToken {
    /// What the code is made over. The boot token is random: a host that is declared anew gets another user.
    pub fn message(bearer: &Bearer, boot_token: &TokenHash) -> String {
        format!("bootstrap token\n{}\n{boot_token}", bearer.message())
    }

    /// The token of a code.
    pub fn of_code(code: &[u8; 32]) -> BootstrapToken {
        let mut id = [0; 16];
        let mut secret = [0; 16];
        id.copy_from_slice(&code[..16]);
        secret.copy_from_slice(&code[16..]);
        BootstrapToken {
            id: letters(u128::from_be_bytes(id), ID),
            secret: letters(u128::from_be_bytes(secret), SECRET),
        }
    }

    /// The part everybody may know.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The other part. Secret.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Who asks with it.
    pub fn user(&self) -> String {
        format!("{USER}{}", self.id)
    }
}

/// 128 bits are so many that none of the letters is noticeably likelier.
fn letters(mut number: u128, length: usize) -> String {
    let mut text = String::new();
    for _ in 0..length {
        text.push(char::from(LETTERS[(number % 36) as usize]));
        number /= 36;
    }
    text
}

/// The name of the Secret that makes a user's token good; None for any other user.
pub fn secret_name(user: &str) -> Option<String> {
    let id = user.strip_prefix(USER)?;
    let whole = id.len() == ID && id.bytes().all(|letter| LETTERS.contains(&letter));
    whole.then(|| format!("bootstrap-token-{id}"))
}

/// A kubeconfig with its one user, context and cluster, without the token. None when it has no token in it: then it is not
/// a bootstrap kubeconfig, or not one that can be changed.
pub fn take_credentials(text: &str) -> Option<Value> {
    let mut sources = SourceMap::default();
    let file = sources.add("kubeconfig", text);
    let (documents, _) = parse_yaml(file, sources.file(file));
    let [document] = &documents[..] else { return None };
    let root = document.to_json();
    let named = |list: &str, name: &str| {
        root[list].as_array().into_iter().flatten().find(|entry| entry["name"] == name).cloned()
    };
    let context = named("contexts", root["current-context"].as_str()?)?;
    let cluster = named("clusters", context["context"]["cluster"].as_str()?)?;
    let user = named("users", context["context"]["user"].as_str()?)?;
    user["user"]["token"].as_str().filter(|token| !token.is_empty())?;
    Some(json!({"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context],
        "current-context": root["current-context"], "users": [{"name": user["name"], "user": {}}]}))
}

/// The kubeconfig for the host of a token. Secret.
pub fn render_kubeconfig(without: &Value, token: &BootstrapToken) -> String {
    let mut kubeconfig = without.clone();
    kubeconfig["users"][0]["user"] = json!({"token": format!("{}.{}", token.id, token.secret)});
    format!("{kubeconfig}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_kubernetes_form_and_does_not_print_its_secret() {
        let token = BootstrapToken::of_code(&std::array::from_fn(|index| index as u8));
        assert_eq!((token.id().len(), token.secret().len()), (6, 16));
        assert!(format!("{}{}", token.id(), token.secret()).bytes().all(|letter| LETTERS.contains(&letter)));
        assert!(!format!("{token:?}").contains(token.secret()));
        let name = format!("bootstrap-token-{}", token.id());
        assert_eq!(secret_name(&token.user()), Some(name));
        assert_ne!(token, BootstrapToken::of_code(&[7; 32]));
    }

    #[test]
    fn a_boot_token_more_makes_another_message() {
        let bearer = Bearer { namespace: "lab".into(), host: "w0".into(), generation: 1 };
        let message = BootstrapToken::message(&bearer, &TokenHash([0xab; 32]));
        assert_eq!(message, format!("bootstrap token\nlab/w0/1\n{}", "ab".repeat(32)));
    }

    #[test]
    fn only_the_user_of_a_bootstrap_token_leads_to_a_secret() {
        let long = format!("{USER}abcdefg");
        for user in ["", USER, "system:bootstrap:abc", "system:bootstrap:abc/ef", "system:bootstrap:ABCDEF", &long] {
            assert_eq!(secret_name(user), None, "{user}");
        }
    }

    const KUBECONFIG: &str = "clusters:\n- {name: local, cluster: {server: 'https://api-int.lab:6443', certificate-authority-data: Q0E=}}\n- {name: other, cluster: {server: 'https://x'}}\nusers:\n- {name: kubelet, user: {token: shared-secret}}\n- {name: admin, user: {token: another-secret}}\ncontexts:\n- {name: kubelet, context: {cluster: local, user: kubelet}}\ncurrent-context: kubelet\n";

    #[test]
    fn the_shared_token_goes_and_the_hosts_own_comes() {
        let without = take_credentials(KUBECONFIG).unwrap();
        assert!(!without.to_string().contains("secret"), "{without}");
        let token = BootstrapToken::of_code(&[1; 32]);
        let filled = render_kubeconfig(&without, &token);
        let read: Value = serde_json::from_str(&filled).unwrap();
        assert_eq!(read["users"][0]["user"]["token"], format!("{}.{}", token.id(), token.secret()));
        assert_eq!(
            read["clusters"],
            json!([{"name": "local", "cluster": {"server": "https://api-int.lab:6443", "certificate-authority-data": "Q0E="}}])
        );
        assert_eq!(take_credentials(&filled), Some(without), "a JSON text is YAML");
    }

    #[test]
    fn what_has_no_token_in_it_is_left_alone() {
        for text in [
            "",
            "[",
            "a: 1",
            &KUBECONFIG.replace("current-context: kubelet", "current-context: nobody"),
            &KUBECONFIG.replace("token: shared-secret", "client-certificate: /var/lib/kubelet/pki/a.pem"),
            &KUBECONFIG.replace("shared-secret", "''"),
            &format!("{KUBECONFIG}---\n{KUBECONFIG}"),
        ] {
            assert_eq!(take_credentials(text), None, "{text}");
        }
    }
}
