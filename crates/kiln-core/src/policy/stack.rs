//! Layers laid over each other, field by field, and the document they make.
//!
//! What nmstate does with what a machine has and a document does not mention, is done here with what a lower layer says:
//! an interface that becomes a port of a bond or a bridge gives up its addresses and routes, an absent one gives up
//! everything. **Invariant:** every field of the rendered document has exactly one owner.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::fields::{Field, Path, Segment, fields};

/// One document among the layers.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    /// `host`, `pool` or `policy/NAME`.
    pub(super) name: String,
    /// Of a policy. Layers of one priority are equals.
    pub(super) priority: Option<i64>,
    pub(super) fields: Vec<Field>,
}

impl Layer {
    pub(super) fn new(name: impl Into<String>, priority: Option<i64>, document: &Value) -> Layer {
        Layer { name: name.into(), priority, fields: fields(document) }
    }

    fn is_equal_of(&self, other: &Layer) -> bool {
        self.priority.is_some() && self.priority == other.priority
    }

    /// Interfaces it takes away.
    fn absent(&self) -> BTreeSet<Path> {
        let absent = self.fields.iter().filter(|field| is_absence(field));
        absent.filter_map(|field| field.path.interface()).collect()
    }

    /// Interfaces it speaks of.
    fn interfaces(&self) -> BTreeSet<Path> {
        self.fields.iter().filter_map(|field| field.path.interface()).collect()
    }
}

fn is_absence(field: &Field) -> bool {
    matches!(&field.path.0[..], [_, Segment::Item(_), Segment::Key(key)] if key == "state") && field.value == "absent"
}

/// A value, the layer that says it, and where it stands among its neighbours.
#[derive(Debug, Clone)]
struct Held {
    value: Value,
    layer: usize,
    rank: (usize, usize),
}

/// The sum of some layers.
#[derive(Debug, Clone, Default)]
pub(super) struct Stack {
    layers: Vec<Layer>,
    held: BTreeMap<Path, Held>,
}

impl Stack {
    /// Lays one more over the others.
    pub(super) fn add(&mut self, layer: Layer) {
        let index = self.layers.len();
        self.give_way(&layer);
        for (position, Field { path, value }) in layer.fields.iter().enumerate() {
            let below = self.below(path);
            let says_nothing = value.as_object().is_some_and(Map::is_empty) && !clears(path);
            if says_nothing && !below.is_empty() {
                continue;
            }
            below.iter().for_each(|path| drop(self.held.remove(path)));
            for length in 0..path.0.len() {
                self.held.remove(&Path(path.0[..length].to_vec()));
            }
            let rank = self.held.get(path).map_or((index, position), |held| held.rank);
            self.held.insert(path.clone(), Held { value: value.clone(), layer: index, rank });
        }
        self.layers.push(layer);
    }

    /// Paths strictly below one.
    fn below(&self, path: &Path) -> Vec<Path> {
        let from = self.held.range(path.clone()..).map(|(found, _)| found);
        from.take_while(|found| found.starts_with(path)).filter(|found| *found != path).cloned().collect()
    }

    /// Takes away what a layer, without saying so, puts an end to.
    fn give_way(&mut self, layer: &Layer) {
        let absent = layer.absent();
        let gone: BTreeSet<Path> = self
            .held
            .iter()
            .filter(|(path, held)| path.0.last() == Some(&Segment::Key("state".into())) && held.value == "absent")
            .filter_map(|(path, _)| path.interface())
            .collect();
        let back: BTreeSet<Path> =
            layer.interfaces().difference(&absent).filter(|path| gone.contains(path)).cloned().collect();
        let ports = ports_of(layer);
        let absent_names: BTreeSet<String> = absent.iter().filter_map(name_of).collect();
        let lists: Vec<Path> = ["server", "search", "options"]
            .into_iter()
            .map(|key| Path::keys(&["dns-resolver", "config", key]))
            .filter(|list| layer.fields.iter().any(|field| field.path.starts_with(list)))
            .collect();
        let routes: Vec<&Value> =
            layer.fields.iter().filter(|field| is_route(&field.path)).map(|field| &field.value).collect();
        let layers = &self.layers;
        self.held.retain(|path, held| {
            let interface = path.interface();
            if interface.as_ref().is_some_and(|interface| absent.contains(interface) || back.contains(interface)) {
                return false;
            }
            if let (Some(interface), [_, _, Segment::Key(family), ..]) = (&interface, &path.0[..])
                && matches!(family.as_str(), "ipv4" | "ipv6")
                && name_of(interface).is_some_and(|name| ports.contains(&name))
            {
                return false;
            }
            if is_route(path) {
                let over = held.value["next-hop-interface"].as_str().unwrap_or_default();
                let lost = ports.contains(over) || absent_names.contains(over);
                return !lost && !routes.iter().any(|route| overrules(route, &held.value));
            }
            let replaced = lists.iter().any(|list| path.starts_with(list)) && !layers[held.layer].is_equal_of(layer);
            !replaced
        });
    }

    /// The document.
    pub(super) fn render(&self) -> Value {
        let mut root = Tree::Mapping(BTreeMap::new());
        for (path, held) in &self.held {
            root.insert(&path.0, held);
        }
        root.into_value()
    }

    /// Whose each field is.
    pub(super) fn owners(&self) -> BTreeMap<String, String> {
        self.held.iter().map(|(path, held)| (path.to_string(), self.layers[held.layer].name.clone())).collect()
    }

    /// Which layers own fields of each interface, by its name.
    pub(super) fn layers(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (path, held) in &self.held {
            if let Some(name) = path.interface().as_ref().and_then(name_of) {
                found.entry(name).or_default().insert(self.layers[held.layer].name.clone());
            }
        }
        found
    }
}

/// `dns-resolver: {config: {}}` means no name servers, where an empty mapping elsewhere means nothing.
fn clears(path: &Path) -> bool {
    *path == Path::keys(&["dns-resolver", "config"])
}

pub(super) fn is_route(path: &Path) -> bool {
    matches!(&path.0[..], [Segment::Key(section), Segment::Key(config), Segment::Item(_)]
        if matches!(section.as_str(), "routes" | "route-rules") && config == "config")
}

/// Whether one route ends the other: one is absent and matches what the other adds.
pub(super) fn overrules(one: &Value, other: &Value) -> bool {
    let is_absent = |route: &Value| route["state"] == "absent";
    match (is_absent(one), is_absent(other)) {
        (true, false) => matches(one, other),
        (false, true) => matches(other, one),
        _ => false,
    }
}

/// Whether everything an absent route says is said by a route.
fn matches(absent: &Value, route: &Value) -> bool {
    let said = absent.as_object().into_iter().flatten().filter(|(key, _)| *key != "state");
    said.into_iter().all(|(key, value)| route[key] == *value)
}

/// Interfaces a layer makes ports that can have no addresses of their own.
pub(super) fn ports_of(layer: &Layer) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for Field { path, value } in &layer.fields {
        let [_, Segment::Item(controller), Segment::Key(section), Segment::Key(key)] = &path.0[..] else { continue };
        let list = value.as_array().into_iter().flatten();
        match (section.as_str(), key.as_str()) {
            ("link-aggregation", "port") => names.extend(list.filter_map(Value::as_str).map(str::to_owned)),
            ("bridge", "port") => {
                // The interface an OVS bridge is called by is one of its ports, and keeps its addresses.
                let own = controller.strip_suffix("/ovs-bridge");
                let ports = list.filter(|port| own.is_none() || !is_internal(layer, port));
                for port in ports {
                    names.extend(port["name"].as_str().map(str::to_owned));
                    let bonded = port["link-aggregation"]["port"].as_array().into_iter().flatten();
                    names.extend(bonded.filter_map(|port| port["name"].as_str()).map(str::to_owned));
                }
            }
            _ => {}
        }
    }
    names
}

/// Whether a port is an interface of Open vSwitch itself.
fn is_internal(layer: &Layer, port: &Value) -> bool {
    let Some(name) = port["name"].as_str() else { return false };
    let kind = Path::keys(&["interfaces"]).item(name).key("type");
    layer.fields.iter().any(|field| field.path == kind && field.value == "ovs-interface")
}

fn name_of(interface: &Path) -> Option<String> {
    match &interface.0[..] {
        [_, Segment::Item(name)] => Some(name.split('/').next().unwrap_or(name).to_owned()),
        _ => None,
    }
}

enum Tree<'h> {
    Leaf(&'h Held),
    Mapping(BTreeMap<&'h str, Tree<'h>>),
    List(BTreeMap<&'h str, Tree<'h>>),
}

impl<'h> Tree<'h> {
    fn insert(&mut self, path: &'h [Segment], held: &'h Held) {
        let Some((first, rest)) = path.split_first() else {
            *self = Tree::Leaf(held);
            return;
        };
        let (Segment::Key(name) | Segment::Item(name)) = first;
        let (Tree::Mapping(entries) | Tree::List(entries)) = self else { return };
        let empty = || match rest.first() {
            Some(Segment::Item(_)) => Tree::List(BTreeMap::new()),
            _ => Tree::Mapping(BTreeMap::new()),
        };
        entries.entry(name).or_insert_with(empty).insert(rest, held);
    }

    fn rank(&self) -> (usize, usize) {
        match self {
            Tree::Leaf(held) => held.rank,
            Tree::Mapping(entries) | Tree::List(entries) => entries.values().map(Tree::rank).min().unwrap_or_default(),
        }
    }

    fn into_value(self) -> Value {
        match self {
            Tree::Leaf(held) => held.value.clone(),
            Tree::Mapping(entries) => {
                entries.into_iter().map(|(key, tree)| (key.to_owned(), tree.into_value())).collect::<Map<_, _>>().into()
            }
            Tree::List(entries) => {
                let mut items: Vec<Tree<'h>> = entries.into_values().collect();
                items.sort_by_key(Tree::rank);
                items.into_iter().map(Tree::into_value).collect()
            }
        }
    }
}
