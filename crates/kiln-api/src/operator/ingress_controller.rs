//! `IngressController` (operator.openshift.io/v1): where routers run and which domain they serve.

use kiln_core::diagnostic::Diagnostic;
use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{Ingress, Meta};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;
use crate::manifest::{Selector, selector};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct IngressControllerSpec {
    #[serde(rename = "clientTLS")]
    client_tls: Carried,
    closed_client_connection_policy: Carried,
    default_certificate: Carried,
    domain: Option<Sourced<String>>,
    endpoint_publishing_strategy: Carried,
    haproxy_version: Carried,
    http_compression: Carried,
    http_empty_requests_policy: Carried,
    http_error_code_pages: Carried,
    http_headers: Carried,
    idle_connection_termination_policy: Carried,
    logging: Carried,
    namespace_selector: Carried,
    node_placement: NodePlacement,
    replicas: Option<Sourced<u32>>,
    route_admission: Carried,
    route_selector: Carried,
    tls_security_profile: Carried,
    tuning_options: Carried,
    unsupported_config_overrides: Carried,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodePlacement {
    node_selector: Option<Sourced<Selector>>,
    tolerations: Carried,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let spec: IngressControllerSpec = intake.read_spec(root);
    let ingress = Ingress { within: intake.within.clone(), ..spec.convert(meta, &mut intake.findings) };
    intake.world.ingresses.push(ingress);
}

impl IngressControllerSpec {
    fn convert(self, meta: Meta, findings: &mut Vec<Diagnostic>) -> Ingress {
        let IngressControllerSpec {
            client_tls: Carried,
            closed_client_connection_policy: Carried,
            default_certificate: Carried,
            domain,
            endpoint_publishing_strategy: Carried,
            haproxy_version: Carried,
            http_compression: Carried,
            http_empty_requests_policy: Carried,
            http_error_code_pages: Carried,
            http_headers: Carried,
            idle_connection_termination_policy: Carried,
            logging: Carried,
            namespace_selector: Carried,
            node_placement: NodePlacement { node_selector, tolerations: Carried },
            replicas,
            route_admission: Carried,
            route_selector: Carried,
            tls_security_profile: Carried,
            tuning_options: Carried,
            unsupported_config_overrides: Carried,
        } = self;
        let node_selector = node_selector.map(|written| selector(Some(written), findings));
        Ingress { meta, domain, node_selector, replicas, within: None }
    }
}
