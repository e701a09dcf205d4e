//! nmstate documents to NetworkManager keyfiles, with nothing dropped in silence.
//!
//! The `nmstate` crate does the translation, because it is the one the field uses. What it leaves out of the keyfiles
//! without a word, or takes from the machine it happens to run on, is rendered or reported here.
//! Same document, same bytes: UUIDs are derived from type and name of the interface, files are sorted by name.
//!
//! Not here: reading YAML (see [`crate::document`]), finding the document inside an NMStateConfig or a policy, writing.
//! The crate stops at the first mistake and names neither line nor field: the place is found again in [`blame`].

use crate::diagnostic::{Diagnostic, Severity};
use crate::document::Node;
use crate::keyfile::ConnectionFile;
use crate::source::Sourced;
use crate::world::NicMapping;

mod blame;
mod convert;
mod text;

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
    let prepared = convert::prepare(document, nics);
    let mut rendered = Rendered { files: Vec::new(), hostname: prepared.hostname, diagnostics: prepared.diagnostics };
    match convert::to_files(&prepared.json) {
        Ok(files) => rendered.files = files,
        Err(failure) => rendered.diagnostics.extend(blame::explain(document, &prepared.json, failure)),
    }
    rendered.diagnostics.sort_by_key(|diagnostic| (diagnostic.at, diagnostic.code));
    rendered
}
