//! Files and folders to documents: finding, reading and unfolding manifests.
//!
//! [`load`] reads everything it can and reports the rest: only a path that does not exist ends it. Same files, same
//! documents in the same order. Memory is bounded by [`MAX_FILES`] and [`MAX_TOTAL_BYTES`] beside the bounds of the
//! parsers; a file's size is looked at before it is read. Symbolic links are followed, and no file or folder is read twice.
//!
//! Not here: what a document means (`kiln_api`).
//! A folder with a `kustomization.yaml` consists of what that lists, not of the files beside it, as for kustomize.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use anyhow::anyhow;
use kiln_core::diagnostic::{Code, Diagnostic, Severity};
use kiln_core::document::json::parse_json;
use kiln_core::document::yaml::{MAX_FILE_BYTES, parse_yaml, template, too_large};
use kiln_core::document::{Node, Value};
use kiln_core::source::{FileId, Location, SourceMap, Span};

use super::output::Failure;
use kustomization::NAMES;

mod kustomization;

/// How many files are read at most.
pub const MAX_FILES: usize = 100_000;
/// How much text is read at most: 256 MiB.
pub const MAX_TOTAL_BYTES: u64 = 256 << 20;

/// What was found under the given paths.
#[derive(Debug, Default)]
pub struct Loaded {
    /// All texts.
    pub sources: SourceMap,
    /// All documents; lists of objects are unfolded.
    pub documents: Vec<Node>,
    /// What is wrong with the files and texts.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads files, folders and, for `-`, standard input.
pub fn load(paths: &[PathBuf]) -> Result<Loaded, Failure> {
    let mut loader = Loader::default();
    for path in paths {
        let before = loader.progress();
        if path.as_os_str() == "-" {
            loader.standard_input();
        } else {
            loader.path(path)?;
        }
        if loader.progress() == before {
            loader.report(no_manifests(path));
        }
    }
    Ok(loader.loaded)
}

#[derive(Default)]
struct Loader {
    loaded: Loaded,
    /// Files that were read, by their real path.
    seen: HashSet<PathBuf>,
    /// How often a file was not read again.
    repeated: usize,
    /// Kustomizations that are being read, outermost first, and where each was listed.
    open: Vec<(PathBuf, Option<Location>)>,
    files: usize,
    bytes: u64,
    full: bool,
}

impl Loader {
    /// A path from the command line, which must exist.
    fn path(&mut self, path: &Path) -> Result<(), Failure> {
        let metadata = fs::metadata(path)
            .map_err(|error| Failure::refused(anyhow!(error).context(format!("cannot read `{}`", path.display()))))?;
        if metadata.is_dir() {
            self.folder(path);
        } else if is_kustomization(path) {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            self.kustomization(folder, path, None);
        } else {
            self.file(path);
        }
        Ok(())
    }

    /// All manifests below a folder. Kustomizations that others include are read through those.
    fn folder(&mut self, folder: &Path) {
        let (mut found, mut visited) = (Vec::new(), HashSet::new());
        self.walk(folder, &mut visited, &mut found);
        let included: HashSet<PathBuf> = found
            .iter()
            .filter(|path| is_kustomization(path))
            .flat_map(|path| kustomization::included_folders(path))
            .map(|folder| real(&folder))
            .collect();
        for path in &found {
            match path.parent() {
                Some(folder) if is_kustomization(path) => {
                    if !included.contains(&real(folder)) {
                        self.kustomization(folder, path, None);
                    }
                }
                _ => self.file(path),
            }
        }
        // Kustomizations that include each other in a circle have no outermost one: read them, to report the circle.
        for path in
            found.iter().filter(|path| is_kustomization(path) && !self.seen.contains(&real(path))).collect::<Vec<_>>()
        {
            if let Some(folder) = path.parent() {
                self.kustomization(folder, path, None);
            }
        }
    }

    /// Lists manifests in order; for a folder with a kustomization only that file.
    fn walk(&mut self, folder: &Path, visited: &mut HashSet<PathBuf>, found: &mut Vec<PathBuf>) {
        if found.len() > MAX_FILES || !visited.insert(real(folder)) {
            return;
        }
        if let Some(file) = kustomization::find(folder) {
            found.push(file);
            return;
        }
        let mut entries: Vec<PathBuf> = match fs::read_dir(folder) {
            Ok(entries) => entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect(),
            Err(error) => return self.unreadable(folder, &error),
        };
        entries.sort();
        for path in entries.into_iter().filter(|path| !is_hidden(path)) {
            match fs::metadata(&path) {
                Ok(metadata) if metadata.is_dir() => self.walk(&path, visited, found),
                Ok(metadata) if metadata.is_file() && is_manifest(&path) => found.push(path),
                Ok(_) => {}
                Err(error) if is_manifest(&path) => self.unreadable(&path, &error),
                Err(_) => {}
            }
        }
    }

    /// One file of manifests.
    fn file(&mut self, path: &Path) {
        if let Some(file) = self.read(path) {
            self.documents(file, path.extension().is_some_and(|extension| extension == "json"));
        }
    }

    fn standard_input(&mut self) {
        let mut bytes = Vec::new();
        match io::stdin().lock().take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes) {
            Ok(_) => {
                if let Some(file) = self.text("<stdin>".to_owned(), bytes) {
                    self.documents(file, false);
                }
            }
            Err(error) => self.unreadable(Path::new("<stdin>"), &error),
        }
    }

    /// The text of a file that was not read before, within the bounds.
    fn read(&mut self, path: &Path) -> Option<FileId> {
        if self.full {
            return None;
        }
        if !self.seen.insert(real(path)) {
            self.repeated += 1;
            return None;
        }
        let size = fs::metadata(path).map_or(0, |metadata| metadata.len());
        self.files += 1;
        self.bytes += size.min(MAX_FILE_BYTES as u64);
        if self.files > MAX_FILES || self.bytes > MAX_TOTAL_BYTES {
            self.full = true;
            self.report(
                Diagnostic::new(
                    Code(0028),
                    None,
                    format!("reading stopped at `{}`: there is too much to read", path.display()),
                )
                .cause(format!("Kiln reads at most {MAX_FILES} files and {} MiB at once", MAX_TOTAL_BYTES >> 20))
                .help("give the folder that holds the manifests, or check its parts one by one"),
            );
            return None;
        }
        if size > MAX_FILE_BYTES as u64 {
            let file = self.loaded.sources.add(name(path), "");
            self.report(too_large(file, size));
            return None;
        }
        match read_bounded(path) {
            Ok(bytes) => self.text(name(path), bytes),
            Err(error) => {
                self.unreadable(path, &error);
                None
            }
        }
    }

    /// Registers bytes as a text, if they are one.
    fn text(&mut self, name: String, bytes: Vec<u8>) -> Option<FileId> {
        let size = bytes.len();
        if size > MAX_FILE_BYTES {
            let file = self.loaded.sources.add(name, "");
            self.report(too_large(file, size as u64));
            return None;
        }
        let problem = match bytes.iter().position(|byte| *byte == 0) {
            Some(at) => format!("byte {at} is a NUL byte"),
            None => match String::from_utf8(bytes) {
                Ok(text) => return Some(self.loaded.sources.add(name, text)),
                Err(error) => format!("byte {} does not belong to UTF-8", error.utf8_error().valid_up_to()),
            },
        };
        let file = self.loaded.sources.add(name, "");
        self.report(
            Diagnostic::new(Code(0021), start_of(file), format!("the file is not text: {problem}"))
                .cause("manifests are text in UTF-8")
                .help("leave the file out, or save it as UTF-8 text"),
        );
        None
    }

    /// Parses a text and keeps its documents.
    fn documents(&mut self, file: FileId, json: bool) {
        let source = self.loaded.sources.file(file);
        let (documents, diagnostics) = if json {
            let (document, diagnostics) = parse_json(file, source);
            (document.into_iter().collect(), diagnostics)
        } else {
            parse_yaml(file, source)
        };
        self.loaded.diagnostics.extend(diagnostics);
        for document in documents {
            self.document(document);
        }
    }

    fn document(&mut self, document: Node) {
        if let Some(at) = template_place(&document) {
            let told = self
                .loaded
                .diagnostics
                .iter()
                .any(|known| known.code == Code(0022) && known.at.is_some_and(|known| known.file == at.file));
            if !told {
                self.report(template(at));
            }
            return;
        }
        let kind = document.get("kind").and_then(Node::as_str);
        if kind.is_some_and(|kind| kind.ends_with("List"))
            && document.get("items").is_some_and(|items| matches!(items.value, Value::Sequence(_)))
        {
            for item in into_items(document) {
                self.document(item);
            }
            return;
        }
        self.loaded.documents.push(document);
    }

    fn unreadable(&mut self, path: &Path, error: &io::Error) {
        let file = self.loaded.sources.add(name(path), "");
        self.report(
            Diagnostic::new(Code(0029), start_of(file), format!("`{}` cannot be read: {error}", path.display()))
                .help("correct its permissions, or leave it out"),
        );
    }

    fn report(&mut self, diagnostic: Diagnostic) {
        self.loaded.diagnostics.push(diagnostic);
    }

    /// Changes when a document was found, or when the reason why there is none has been told.
    fn progress(&self) -> (usize, usize, usize) {
        let errors = self.loaded.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
        (self.loaded.documents.len(), errors.count(), self.repeated)
    }
}

fn no_manifests(path: &Path) -> Diagnostic {
    let (message, cause) = if path.is_dir() {
        let cause = "manifests are documents in files that end in .yaml, .yml or .json; hidden files are not looked at";
        (format!("no manifests found in `{}`", path.display()), cause)
    } else {
        let name = if path.as_os_str() == "-" { "<stdin>".into() } else { path.to_string_lossy() };
        (format!("`{name}` is empty: it holds no manifest"), "comments and `---` alone are not a document")
    };
    Diagnostic::new(Code(0020), None, message).cause(cause).help("give the folder or file that holds the manifests")
}

/// Where an object that parses gives away that it is a template: in the fields no object can do without.
fn template_place(document: &Node) -> Option<Location> {
    let paths: [&[&str]; 4] = [&["apiVersion"], &["kind"], &["metadata", "name"], &["metadata", "namespace"]];
    paths
        .into_iter()
        .filter_map(|path| document.path(path))
        .find(|node| node.as_str().is_some_and(|text| text.contains("{{")))
        .map(|node| node.at)
}

fn into_items(document: Node) -> Vec<Node> {
    let Value::Mapping(entries) = document.value else { return Vec::new() };
    let items = entries.into_iter().find(|entry| &*entry.key.value == "items").map(|entry| entry.value.value);
    if let Some(Value::Sequence(items)) = items { items } else { Vec::new() }
}

/// At most one byte more than a file may have, whatever its size was said to be.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn start_of(file: FileId) -> Location {
    Location { file, span: Span::default() }
}

fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml" || extension == "json")
}

fn is_kustomization(path: &Path) -> bool {
    path.file_name().is_some_and(|name| NAMES.iter().any(|known| name == *known))
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// The path as messages show it, without `a/../`.
fn name(path: &Path) -> String {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if matches!(clean.components().next_back(), Some(Component::Normal(_))) => {
                clean.pop();
            }
            Component::CurDir => {}
            other => clean.push(other),
        }
    }
    clean.display().to_string()
}
