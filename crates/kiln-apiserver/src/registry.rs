//! Every resource that is served now. Immutable: a change of a definition makes a new one.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use crate::definition::{builtin_resources, parse_definition};
use crate::resource::Resource;
use crate::store::Snapshot;

/// Every served resource.
#[derive(Debug, Default)]
pub struct Registry {
    resources: Vec<Arc<Resource>>,
    builtin: Vec<Arc<Resource>>,
    /// What each definition defined at which revision: rules are compiled once, not with every definition.
    defined: HashMap<Arc<str>, (u64, Vec<Arc<Resource>>)>,
}

/// Where definitions are stored.
pub const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

impl Registry {
    /// The kinds that come with the server and those that were defined.
    pub fn of(snapshot: &Snapshot) -> Registry {
        let builtin = builtin_resources().into_iter().map(Arc::new).collect();
        Registry { builtin, ..Registry::default() }.updated(snapshot)
    }

    /// Whether the definitions are these.
    pub fn is_of(&self, snapshot: &Snapshot) -> bool {
        let is_known = |name: &Arc<str>, revision| self.defined.get(name).is_some_and(|(known, _)| *known == revision);
        self.defined.len() == snapshot.count(DEFINITIONS)
            && snapshot.list(DEFINITIONS, None, None).all(|stored| is_known(&stored.place.name, stored.revision))
    }

    /// The same with the definitions as they are now; what did not change is not parsed again.
    #[must_use]
    pub fn updated(&self, snapshot: &Snapshot) -> Registry {
        let mut resources = self.builtin.clone();
        let mut defined = HashMap::new();
        for stored in snapshot.list(DEFINITIONS, None, None) {
            let name = Arc::clone(&stored.place.name);
            let known = self.defined.get(&name).filter(|(revision, _)| *revision == stored.revision);
            let own = match (known, known.is_none().then(|| parse_definition(&stored.value()))) {
                (Some((_, own)), _) => own.clone(),
                (None, Some(Ok(parsed))) => parsed.into_iter().map(Arc::new).collect(),
                // What is stored was accepted once; one that no longer is stays out and keeps its objects.
                (None, _) => {
                    tracing::warn!(%name, "a stored definition is not understood any more");
                    continue;
                }
            };
            resources.extend(own.iter().cloned());
            defined.insert(name, (stored.revision, own));
        }
        Registry { resources, builtin: self.builtin.clone(), defined }
    }

    /// One resource.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources
            .iter()
            .find(|resource| resource.group == group && resource.version == version && resource.plural == plural)
    }

    /// Whether anything is served there.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.resources.iter().any(|resource| resource.group == group && resource.version == version)
    }

    /// Every resource.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.iter()
    }

    /// The resources of one version of a group.
    pub fn of_version<'a>(&'a self, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.resources.iter().filter(move |resource| resource.group == group && resource.version == version)
    }

    /// Any version of what is stored in a collection.
    pub fn of_collection(&self, collection: &str) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|resource| *resource.collection == *collection)
    }

    /// Groups in order, the core not among them, each with its versions, the preferred first.
    pub fn groups(&self) -> Vec<(String, Vec<String>)> {
        let mut groups: Vec<(String, Vec<String>)> = Vec::new();
        for resource in self.resources.iter().filter(|resource| !resource.group.is_empty()) {
            let at = groups.iter().position(|(group, _)| *group == resource.group).unwrap_or_else(|| {
                groups.push((resource.group.clone(), Vec::new()));
                groups.len() - 1
            });
            let versions = &mut groups[at].1;
            if !versions.contains(&resource.version) {
                versions.push(resource.version.clone());
            }
        }
        for (_, versions) in &mut groups {
            versions.sort_by(|a, b| compare_versions(b, a));
        }
        groups
    }
}

/// `v2` above `v1` above `v1beta2` above `v1alpha1` above everything else.
pub(crate) fn compare_versions(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (a, b) => a.is_some().cmp(&b.is_some()).then_with(|| b.cmp(&a)),
    }
}

fn rank(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let major = rest[..end].parse().ok()?;
    let stage = &rest[end..];
    if stage.is_empty() {
        return Some((2, major, 0));
    }
    let (level, minor) = match stage.strip_prefix("beta") {
        Some(minor) => (1, minor),
        None => (0, stage.strip_prefix("alpha")?),
    };
    Some((level, major, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_preferred_as_in_kubernetes() {
        let mut versions = ["foo", "v1alpha1", "v10", "v1beta2", "v2", "v1beta10", "v1"];
        versions.sort_by(|a, b| compare_versions(b, a));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "foo"]);
    }
}
