//! `kiln token` and `kiln ignition pointer --host|--pool` against a real `kiln serve`: the very words people see, and a machine
//! that fetches with what they wrote.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

#[path = "support/served.rs"]
mod served;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use axum::http::Request;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln::hub::controllers::kinds;
use kiln_testimage::temp_dir::TempDir;
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::{Value, json};
use served::Hub;

const CONFIG: &str = "\
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-motd, labels: {machineconfiguration.openshift.io/role: worker}}
spec:
  config:
    ignition: {version: 3.2.0}
    storage: {files: [{path: /etc/motd, mode: 420, contents: {source: \"data:,hello\"}}]}
";

fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), "default", &kinds::find(kind).unwrap().resource())
}

/// A pool with three hosts, and everything made for them.
async fn site(client: &Client) {
    let host = |number: u8| {
        json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": format!("worker-{number}"), "namespace": "default"},
            "spec": {"pool": "edge", "macAddress": format!("52:54:00:00:00:0{number}")}})
    };
    for object in [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config", "namespace": "default"}, "data": {"config": CONFIG}}),
        json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Pool", "metadata": {"name": "edge", "namespace": "default"}, "spec": {"config": [{"name": "config"}]}}),
        host(1),
        host(2),
        host(3),
    ] {
        let api = api(client, object["kind"].as_str().unwrap());
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    let secrets = api(client, "Secret");
    loop {
        let names: Vec<String> = secrets
            .list(&Default::default())
            .await
            .unwrap()
            .items
            .into_iter()
            .filter_map(|secret| secret.metadata.name)
            .collect();
        let made = |start: &str| names.iter().filter(|name| name.starts_with(start)).count();
        if made("overlay-worker-") == 3 && made("user-data-edge-") == 1 {
            return;
        }
        assert!(Instant::now() < deadline, "{names:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn read_pointer(path: &Path) -> Value {
    assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    let pointer: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    pointer["ignition"]["config"]["merge"][0].clone()
}

fn bearer(reference: &Value) -> String {
    let header = reference["httpHeaders"].as_array().unwrap().iter().find(|header| header["name"] == "Authorization");
    header.unwrap()["value"].as_str().unwrap().to_owned()
}

/// What a machine gets with this header: the status, and the paths it would write. The endpoint needs a moment to see a token.
async fn fetch(client: &Client, bearer: &str, wished: u16) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let request =
            Request::get("/ignition").header("Authorization", bearer).body(kube::client::Body::empty()).unwrap();
        let answer = client.send(request).await.unwrap();
        let status = answer.status().as_u16();
        if status == wished {
            let body = axum::body::to_bytes(axum::body::Body::new(answer.into_body()), 1 << 20).await.unwrap();
            let config: Value = serde_json::from_slice(&body).unwrap_or_default();
            let files = config["storage"]["files"].as_array().cloned().unwrap_or_default();
            return files.iter().map(|file| file["path"].as_str().unwrap().to_owned()).collect();
        }
        assert!(Instant::now() < deadline, "the endpoint answers {status} and not {wished}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_fetches_with_its_own_token_until_it_is_taken_back() {
    let (folder, files) = (TempDir::new("tokens-host"), TempDir::new("tokens-host-files"));
    let hub = Hub::start(folder.path());
    let client = hub.client().await;
    let (exit, output, _) = hub.kiln(&["token", "list"]);
    assert_eq!((exit, output.as_str()), (0, "there are no tokens; `kiln ignition pointer --host HOST` makes one\n"));
    site(&client).await;
    let path = files.path().join("w1.ign");
    let out = path.to_str().unwrap();
    let make = ["ignition", "pointer", "--host", "worker-1", "--endpoint", "https://hub.lab:8443/", "--out", out];
    let (exit, output, complaints) = hub.kiln(&make);
    assert_eq!((exit, output.as_str(), complaints), (0, "", format!("wrote {out}\n")));
    let reference = read_pointer(&path);
    assert_eq!(reference["source"], "https://hub.lab:8443/ignition");
    assert_eq!(reference["httpHeaders"][1], json!({"name": "NodePool", "value": "default/edge"}));
    let (exit, _, complaints) = hub.kiln(&make);
    assert_eq!((exit, complaints.contains("exists already")), (1, true), "{complaints}");
    let paths = fetch(&client, &bearer(&reference), 200).await;
    assert_eq!(paths, ["/etc/motd", "/etc/hostname", "/etc/kiln/beacon.json"]);
    let text =
        String::from_utf8(STANDARD.decode(bearer(&reference).strip_prefix("Bearer ").unwrap()).unwrap()).unwrap();
    assert!(text.starts_with("kiln-") && text.len() == 48);
    let (exit, output, _) = hub.kiln(&["token", "list", "-o", "json"]);
    assert!(exit == 0 && !output.contains(&text), "{output}");
    let listed: Value = serde_json::from_str(&output).unwrap();
    let own = &listed["tokens"][0];
    assert_eq!(
        (own["for"].as_str(), own["name"].as_str(), own["generation"].as_u64()),
        (Some("host"), Some("worker-1"), Some(1))
    );
    assert!(own["used"].as_str().unwrap().ends_with(" by 127.0.0.1"), "{own}");
    assert_eq!(listed["tokens"][1]["state"], "current");
    let (exit, output, _) = hub.kiln(&["token", "revoke", "worker-1"]);
    assert_eq!((exit, output.as_str()), (0, "the boot token of default/worker-1 (generation 1) is revoked\n"));
    fetch(&client, &bearer(&reference), 511).await;
    // The next one is another one.
    let (exit, output, _) = hub.kiln(&["token", "rotate", "worker-1"]);
    assert!(exit == 0 && output.starts_with("kiln-") && output.trim() != text, "{output}");
    fetch(&client, &format!("Bearer {}", STANDARD.encode(output.trim())), 200).await;
    for (arguments, expected) in [
        (vec!["token", "revoke", "worker-2"], "error: host default/worker-2 has no boot token\n"),
        (
            vec!["token", "revoke", "w9"],
            "error: there is no host `w9`; there are default/worker-1, default/worker-2, default/worker-3\n",
        ),
        (vec!["token", "rotate", "pool:none"], "error: no pool `none` has a token\n"),
    ] {
        let (exit, _, complaints) = hub.kiln(&arguments);
        assert_eq!((exit, complaints.as_str()), (1, expected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_are_made_with_the_command_of_their_platform() {
    let (folder, files) = (TempDir::new("tokens-platform"), TempDir::new("tokens-platform-files"));
    let hub = Hub::start(folder.path());
    let client = hub.client().await;
    site(&client).await;
    let out = files.path().to_str().unwrap();
    let arguments = [
        "ignition",
        "pointer",
        "--name",
        "worker-{}",
        "--count",
        "2",
        "--platform",
        "gcp",
        "--image",
        "redhat-coreos--x86-64-20250826",
        "--out",
        out,
        "--endpoint",
        "https://hub.lab:8443",
    ];
    let (exit, output, complaints) = hub.kiln(&arguments);
    let expected: String = (1..=2)
        .map(|number| format!("gcloud compute instances create worker-{number} \\\n  --image=redhat-coreos--x86-64-20250826 \\\n  --metadata-from-file user-data={out}/worker-{number}.ign\n"))
        .collect();
    assert_eq!((exit, output), (0, expected), "{complaints}");
    let [one, two] = [1, 2].map(|number| bearer(&read_pointer(&files.path().join(format!("worker-{number}.ign")))));
    assert_ne!(one, two, "each host has a token of its own");
    // The machines of a pool share one.
    let path = files.path().join("edge.ign");
    let out = path.to_str().unwrap();
    let arguments = [
        "ignition",
        "pointer",
        "--pool",
        "edge",
        "--name",
        "m-{}",
        "--count",
        "2",
        "--platform",
        "openstack",
        "--out",
        out,
    ];
    let (exit, output, complaints) = hub.kiln(&arguments);
    let expected: String = (1..=2)
        .map(|number| {
            format!(
                "openstack server create --image IMAGE --flavor FLAVOR --network NETWORK --user-data {out} m-{number}\n"
            )
        })
        .collect();
    assert_eq!((exit, output), (0, expected));
    assert_eq!(complaints, format!("wrote {out}\nreplace IMAGE, FLAVOR, NETWORK\n"));
    let shared = bearer(&read_pointer(&path));
    assert_eq!(fetch(&client, &shared, 200).await, ["/etc/motd"]);
    // A new token beside it, then a new one instead of both.
    let (exit, output, _) = hub.kiln(&["token", "rotate", "edge"]);
    assert_eq!((exit, output.as_str()), (0, "pool default/edge gets a new token; the one before is valid beside it\n"));
    fetch(&client, &shared, 200).await;
    let (exit, output, _) = hub.kiln(&["token", "revoke", "edge"]);
    assert_eq!(
        (exit, output.as_str()),
        (0, "1 token of pool default/edge revoked; the hub makes a new token and user-data\n")
    );
    fetch(&client, &shared, 511).await;
    // What a platform would cut is refused, and no token is made.
    let authorities = files.path().join("many.pem");
    std::fs::write(&authorities, "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n".repeat(300)).unwrap();
    let large = files.path().join("large.ign");
    let arguments = [
        "ignition",
        "pointer",
        "--host",
        "worker-3",
        "--platform",
        "aws",
        "--ca",
        authorities.to_str().unwrap(),
        "--out",
        large.to_str().unwrap(),
    ];
    let (exit, output, complaints) = hub.kiln(&arguments);
    assert_eq!((exit, output.as_str()), (1, ""), "{complaints}");
    assert!(complaints.contains("KLN0473") && complaints.contains("aws takes 16384"), "{complaints}");
    assert!(complaints.contains("warning: the pointer names https://127.0.0.1:"), "{complaints}");
    assert!(!large.exists());
    let (_, output, _) = hub.kiln(&["token", "list"]);
    assert!(!output.contains("worker-3"), "{output}");
    let (exit, _, complaints) =
        hub.kiln(&["ignition", "pointer", "--host", "worker-3", "--platform", "s390", "--out", "-"]);
    assert!(
        exit == 1 && complaints.starts_with("error: `s390` is no platform Kiln knows; there are aws, azure, gcp"),
        "{complaints}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_is_let_in_to_read_and_put_out_again() {
    let (folder, files) = (TempDir::new("access"), TempDir::new("access-files"));
    let hub = Hub::start(folder.path());
    let path = files.path().join("anna.kubeconfig");
    let out = path.to_str().unwrap();
    let (exit, said, _) = hub.kiln(&["access", "grant", "anna", "--out", out]);
    assert_eq!(exit, 0, "{said}");
    let id = said.split([' ', ':']).nth(2).unwrap().to_owned();
    assert!(said.starts_with(&format!("{out}: {id} for anna until 20")), "{said}");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let kubeconfig = kube::config::Kubeconfig::read_from(&path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    let anna = Client::try_from(config).unwrap();
    let code = async |kind: &str| match api(&anna, kind).list(&Default::default()).await {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    };
    assert_eq!((code("Host").await, code("Secret").await), (200, 403));
    let (exit, _, complaints) = hub.kiln(&["access", "grant", "anna", "--out", out]);
    assert_eq!((exit, complaints.contains("exists already")), (1, true), "{complaints}");
    let (_, listed, _) = hub.kiln(&["access", "list"]);
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((rows.len(), &rows[1][..3]), (2, &[id.as_str(), "anna", "kiln:viewers"][..]), "{listed}");
    let (exit, said, _) = hub.kiln(&["access", "revoke", &id]);
    assert_eq!((exit, said), (0, format!("{id} is revoked\n")));
    assert_eq!(code("Host").await, 401);
    for (wrong, expected) in [
        (id.as_str(), format!("there is no token `{id}`; `kiln access list` shows those there are")),
        ("../apis", "`../apis` is no id; `kiln access list` shows them".to_owned()),
    ] {
        let (exit, _, complaints) = hub.kiln(&["access", "revoke", wrong]);
        assert_eq!((exit, complaints.contains(&expected)), (1, true), "{complaints}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_gets_an_identity_that_sees_itself_and_nothing_else() {
    let (folder, files) = (TempDir::new("access-host"), TempDir::new("access-host-files"));
    let hub = Hub::start(folder.path());
    let admin = hub.client().await;
    site(&admin).await;
    let path = files.path().join("host.kubeconfig");
    let out = path.to_str().unwrap();
    let grant = |more: &[&str]| hub.kiln(&[&["access", "grant", "--out", out], more].concat());
    for (wrong, expected) in [
        (&["--role", "host"][..], "--host <NAMESPACE/NAME>"),
        (&["--role", "host", "--host", "worker-1"], "NAMESPACE/NAME of a Host is wanted, as in lab/worker-7"),
        (&["--role", "host", "--host", "default/a:b"], "NAMESPACE/NAME of a Host is wanted, as in lab/worker-7"),
        (
            &["--role", "host", "--host", "default/nobody"],
            "there is no Host default/nobody; `kiln status` shows those there are",
        ),
        (&["--host", "default/worker-1"], "--host names the Host of `--role host`, and goes with no other role"),
        (&["anna", "--role", "host", "--host", "default/worker-1"], "cannot be used with"),
    ] {
        let (exit, _, complaints) = grant(wrong);
        assert!(exit != 0 && complaints.contains(expected), "{wrong:?}: {complaints}");
        assert!(!path.exists(), "{wrong:?} wrote something");
    }
    let (exit, said, complaints) = grant(&["--role", "host", "--host", "default/worker-1"]);
    assert_eq!(exit, 0, "{complaints}");
    assert!(said.contains(" for kiln:host:default:worker-1 until 20"), "{said}");
    let kubeconfig = kube::config::Kubeconfig::read_from(&path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    let host = Client::try_from(config).unwrap();
    let code = |result: Result<(), kube::Error>| match result {
        Ok(()) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    };
    let hosts = api(&host, "Host");
    assert_eq!(code(hosts.get("worker-1").await.map(drop)), 200);
    assert_eq!(code(hosts.get("worker-2").await.map(drop)), 403);
    assert_eq!(code(hosts.list(&Default::default()).await.map(drop)), 403);
    let own = kube::api::ListParams::default().fields("metadata.name=worker-1");
    assert_eq!(code(hosts.list(&own).await.map(drop)), 200);
    let secrets = api(&admin, "Secret").list(&Default::default()).await.unwrap();
    assert!(!secrets.items.is_empty(), "there is a Secret to be refused");
    for secret in secrets {
        assert_eq!(code(api(&host, "Secret").get(&secret.metadata.name.unwrap()).await.map(drop)), 403);
    }
    assert_eq!(code(api(&host, "Secret").list(&Default::default()).await.map(drop)), 403);
    let (options, spec) = (Default::default(), json!({"spec": {"pool": "another"}}));
    assert_eq!(code(hosts.patch("worker-1", &options, &kube::api::Patch::Merge(spec)).await.map(drop)), 403);
    let status = kube::api::Patch::Merge(json!({"status": {"node": "worker-1"}}));
    assert_eq!(code(hosts.patch_status("worker-1", &options, &status).await.map(drop)), 200);
    assert_eq!(code(hosts.patch_status("worker-2", &options, &status).await.map(drop)), 403);
    let (_, listed, _) = hub.kiln(&["access", "list"]);
    assert!(listed.contains("kiln:host:default:worker-1") && listed.contains("kiln:hosts"), "{listed}");
    let id = said.split([' ', ':']).nth(2).unwrap();
    assert_eq!(hub.kiln(&["access", "revoke", id]).0, 0);
    assert_eq!(code(hosts.get("worker-1").await.map(drop)), 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_a_host_with_a_very_long_name_is_taken_back_too() {
    let (folder, files) = (TempDir::new("tokens-long"), TempDir::new("tokens-long-files"));
    let hub = Hub::start(folder.path());
    let client = hub.client().await;
    site(&client).await;
    // Two that differ where names of Secrets and labels are cut.
    let names = ["a", "b"].map(|end| format!("{}{end}", "w".repeat(249)));
    for (number, name) in names.iter().enumerate() {
        let object = json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": name, "namespace": "default"},
            "spec": {"pool": "edge", "hostname": format!("w{number}"), "macAddress": format!("52:54:00:00:01:0{number}")}});
        api(&client, "Host").create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }
    let pointers = names.each_ref().map(|name| {
        let path = files.path().join(format!("{}.ign", &name[249..]));
        let out = path.to_str().unwrap();
        let made =
            hub.kiln(&["ignition", "pointer", "--host", name, "--endpoint", "https://hub.lab:8443", "--out", out]);
        assert_eq!(made.0, 0, "{}", made.2);
        bearer(&read_pointer(&path))
    });
    let (exit, output, complaints) = hub.kiln(&["token", "revoke", &names[0]]);
    let told = format!("the boot token of default/{} (generation 1) is revoked\n", names[0]);
    assert_eq!((exit, output, complaints), (0, told, String::new()));
    fetch(&client, &pointers[1], 200).await;
    fetch(&client, &pointers[0], 511).await;
    let (_, listed, _) = hub.kiln(&["token", "list", "-o", "json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let states = names.each_ref().map(|name| {
        let token = listed["tokens"].as_array().unwrap().iter().find(|token| token["name"] == name.as_str()).unwrap();
        token["state"].as_str().unwrap().to_owned()
    });
    assert_eq!(states, ["revoked", "retry"]);
}
