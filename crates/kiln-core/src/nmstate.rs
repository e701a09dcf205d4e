//! nmstate documents to NetworkManager keyfiles, with nothing dropped in silence.
//!
//! The `nmstate` crate does the translation, because it is the one the field uses. What it leaves out of the keyfiles
//! without a word, or takes from the machine it happens to run on, is rendered or reported here.
//! Memory is bounded by [`MAX_INTERFACES`]: the crate takes tens of kilobytes for each.
//! Same document, same bytes: UUIDs are derived from type and name of the interface, files are sorted by name.
//!
//! Not here: reading YAML (see [`crate::document`]), finding the document inside an NMStateConfig or a policy, writing.
//! The crate stops at the first mistake and names neither line nor field: the place is found again in [`blame`].

use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::document::Node;
use crate::keyfile::ConnectionFile;
use crate::source::{Location, Sourced};
use crate::world::NicMapping;
use view::View;

mod blame;
mod capture;
mod convert;
mod lint;
mod macs;
mod text;
mod view;
mod wrapped;

pub(crate) use capture::describe_profiles;
pub use capture::{Captured, capture};
pub(crate) use lint::nearest_interface;
pub use macs::{AssistedView, assisted_view, bind_to_macs};
pub use wrapped::{NetworkDocument, Wrapping, find_network};

/// How many interfaces a document may list; nmstate itself is made for about a thousand.
pub const MAX_INTERFACES: usize = 4096;

/// What one document becomes.
#[derive(Debug, Clone, Default)]
pub struct Rendered {
    /// One profile per file, sorted by file name. What could be rendered; writers must ask [`Rendered::is_refused`].
    pub files: Vec<ConnectionFile>,
    /// `hostname.config`: no keyfile can carry it, it belongs into `/etc/hostname`.
    pub hostname: Option<Sourced<String>>,
    /// Everything that is wrong, lost or worth knowing, in the order of the document.
    pub diagnostics: Vec<Diagnostic>,
}

impl Rendered {
    /// Whether the files say less, or something else, than the document: nobody should write them.
    pub fn is_refused(&self) -> bool {
        self.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }
}

/// Renders a document of which nothing but itself is known.
pub fn render(document: &Node) -> Rendered {
    render_for_nics(document, &[])
}

/// Renders a document whose NICs have known MAC addresses. Names stay as the document has them.
pub fn render_for_nics(document: &Node, nics: &[NicMapping]) -> Rendered {
    if let Some(refusal) = too_many_interfaces(document) {
        return Rendered { diagnostics: vec![refusal], ..Rendered::default() };
    }
    let view = View::new(document);
    if let Some(template) = convert::template(&view) {
        return Rendered { diagnostics: vec![cannot_fill_in(template)], ..Rendered::default() };
    }
    let mut diagnostics = lint::lint(&view, nics);
    let prepared = convert::prepare(&view, nics);
    let files = convert::to_files(&prepared).unwrap_or_else(|message| {
        blame::explain(document, &prepared.json, message, &mut diagnostics);
        Vec::new()
    });
    if files.is_empty() && !diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error) {
        diagnostics.push(nothing_to_render(document));
    }
    diagnostics.sort_by_key(|diagnostic| (diagnostic.at, diagnostic.code));
    Rendered { files, hostname: hostname(document), diagnostics }
}

fn hostname(document: &Node) -> Option<Sourced<String>> {
    let name = document.path(&["hostname", "config"])?;
    Some(Sourced::new(name.as_str().filter(|name| !name.is_empty())?.to_owned(), name.at))
}

fn too_many_interfaces(document: &Node) -> Option<Diagnostic> {
    let interfaces = document.get("interfaces").filter(|list| list.items().len() > MAX_INTERFACES)?;
    let message = format!("the document lists {} interfaces and is not rendered", interfaces.items().len());
    Some(
        Diagnostic::new(Code(0253), interfaces.at, message)
            .cause(format!("nmstate is made for about a thousand interfaces; Kiln takes at most {MAX_INTERFACES}"))
            .help("list the interfaces of one machine, and give every other machine a document of its own"),
    )
}

fn cannot_fill_in(template: Location) -> Diagnostic {
    Diagnostic::new(Code(0209), template, "the document is a template and cannot be rendered offline")
        .cause("captures are answered by the live node's own network state")
        .help("nothing to repair; to render it for a new machine, write the names and values out")
}

fn nothing_to_render(document: &Node) -> Diagnostic {
    Diagnostic::new(Code(0210), document.at, "no profile comes out of the document")
        .cause("keyfiles are rendered only for interfaces with `state: up` or `state: down`")
        .help("add the interfaces the machine is to have under `interfaces`")
}
