//! BareMetalHost: `status.provisioning.state`, `operationalStatus` and errors, as metal3 would word them.
//!
//! Nothing is written while there is nothing to say: `registering` or `poweredOn: false` would be an invention for a
//! machine nobody has asked yet.

use kiln_core::timeline::Stage;
use serde_json::{Value, json};

use super::{Object, View, error_text};

/// None while nothing is known but that it was declared.
pub fn status(view: &View, object: &Object) -> Option<Value> {
    let host = view.host(&object.id)?;
    let furthest = host.furthest();
    let error = error_text(host.findings.iter().copied());
    let unspoken = object.status.get("operationalStatus").is_none();
    if error.is_none() && furthest <= Stage::Declared && unspoken {
        return None;
    }
    let about_bmc = host.findings.first().and_then(|finding| finding.field.as_deref());
    let about_bmc = about_bmc.is_some_and(|field| field.starts_with("spec.bmc"));
    let operational = match (&error, furthest) {
        (Some(_), _) => "error",
        (None, Stage::Declared) => "",
        (None, _) => "OK",
    };
    Some(json!({
        "operationalStatus": operational,
        // metal3 has no word for a manifest that cannot work, except when the controller's address is wrong
        "errorType": (error.is_some() && about_bmc).then_some("registration error"),
        "errorMessage": error.as_deref().unwrap_or_default(),
        "errorCount": u8::from(error.is_some()),
        "poweredOn": furthest >= Stage::PoweredOn,
        "provisioning": {"ID": object.status["provisioning"]["ID"].as_str().unwrap_or_default(),
            "state": state(furthest, host.facts.has_bmc)},
    }))
}

fn state(furthest: Stage, has_bmc: bool) -> &'static str {
    match furthest {
        Stage::Declared if has_bmc => "",
        Stage::Declared => "unmanaged",
        Stage::PoweredOn | Stage::ImageRead => "inspecting",
        Stage::Discovered => "preparing",
        Stage::Validated => "available",
        _ => "provisioned",
    }
}
