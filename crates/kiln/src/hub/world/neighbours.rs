//! Which objects have to do with each other: those that share a word.
//!
//! Whatever one object has to do with another is said by a word both have: a name that is referred to, a MAC address or
//! an address that two claim, a label that is selected. [`Neighbours`] knows the words of every object, so that a change
//! in a world of ten thousand hosts is judged with the few objects that can matter, in time that does not grow with the
//! world. A word that many have (`worker`, say) leads only to the objects that bear it as their name, and kinds with
//! few objects (pools, machine configs, sites) are always among the neighbours.
//!
//! What is lost: conclusions from what is *not* in the whole world, and from how many there are. See
//! [`FROM_THE_WHOLE`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use kiln_core::diagnostic::Code;
use serde_json::Value;

use super::ObjectKey;

/// A word that more objects have leads to none of them: a rack of forty hosts says little about any two of them, and each
/// object that is judged along costs a third of a millisecond.
const COMMON: usize = 4;
/// A kind with no more objects than this is always among the neighbours.
const FEW: usize = 16;
/// No more objects are judged together.
pub const MOST: usize = 48;
/// Longer texts are contents, not words.
const LONGEST: usize = 253;

/// Codes that conclude from absence or from a count in the whole world: not to be believed about a part of it.
pub const FROM_THE_WHOLE: &[Code] = &[
    Code(0126),
    Code(0310),
    Code(0331),
    Code(0332),
    Code(0508),
    Code(0510),
    Code(0512),
    Code(0517),
    Code(0519),
    Code(0525),
    Code(0601),
    Code(0606),
];

/// The words of all objects.
#[derive(Debug, Default)]
pub struct Neighbours {
    numbers: HashMap<Arc<ObjectKey>, u32>,
    objects: HashMap<u32, Known>,
    /// Who has a word; nobody once it is common.
    words: HashMap<Word, Bearers>,
    names: HashMap<Word, Vec<u32>>,
    kinds: BTreeMap<(String, String), BTreeSet<u32>>,
    next: u32,
}

/// An object.
#[derive(Debug)]
struct Known {
    key: Arc<ObjectKey>,
    /// Of its text: what is the same has the same words.
    digest: u64,
    words: Box<[Word]>,
}

/// A word is known by its hash. Two words with one hash cost a needless neighbour, nothing else.
type Word = u32;

/// Ten thousand hosts have some hundred thousand words that few have: no list of its own for each.
#[derive(Debug)]
enum Bearers {
    /// The first so many of these.
    Few(u8, [u32; COMMON]),
    Common,
}

impl Bearers {
    fn few(&self) -> &[u32] {
        match self {
            Bearers::Few(count, few) => &few[..usize::from(*count)],
            Bearers::Common => &[],
        }
    }

    fn add(&mut self, number: u32) {
        match self {
            Bearers::Few(count, few) if usize::from(*count) < COMMON => {
                few[usize::from(*count)] = number;
                *count += 1;
            }
            other => *other = Bearers::Common,
        }
    }

    /// Says whether nobody is left.
    fn remove(&mut self, number: u32) -> bool {
        let Bearers::Few(count, few) = self else { return false };
        if let Some(at) = few[..usize::from(*count)].iter().position(|other| *other == number) {
            few.copy_within(at + 1.., at);
            *count -= 1;
        }
        *count == 0
    }
}

impl Neighbours {
    /// Takes the newest text of an object, or forgets it.
    pub fn update(&mut self, key: &ObjectKey, text: Option<&str>) {
        let digest = text.map(digest);
        let known = self.numbers.get(key).and_then(|number| self.objects.get(number));
        if known.is_some_and(|known| Some(known.digest) == digest) {
            return;
        }
        self.forget(key);
        let (Some(object), Some(digest)) = (text.and_then(|text| serde_json::from_str(text).ok()), digest) else {
            return;
        };
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let words = words(&object);
        for word in &words {
            self.words.entry(*word).or_insert(Bearers::Few(0, [0; COMMON])).add(number);
        }
        self.names.entry(hash(&key.name)).or_default().push(number);
        self.kinds.entry((key.group.clone(), key.kind.clone())).or_default().insert(number);
        let key = Arc::new(key.clone());
        self.numbers.insert(Arc::clone(&key), number);
        self.objects.insert(number, Known { key, digest, words: words.into() });
    }

    fn forget(&mut self, key: &ObjectKey) {
        let Some(number) = self.numbers.remove(key) else { return };
        let Some(Known { words, .. }) = self.objects.remove(&number) else { return };
        for word in words {
            if self.words.get_mut(&word).is_some_and(|bearers| bearers.remove(number)) {
                self.words.remove(&word);
            }
        }
        let name = hash(&key.name);
        if let Some(bearers) = self.names.get_mut(&name) {
            bearers.retain(|other| *other != number);
            if bearers.is_empty() {
                self.names.remove(&name);
            }
        }
        if let Some(kind) = self.kinds.get_mut(&(key.group.clone(), key.kind.clone())) {
            kind.remove(&number);
        }
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Every object, in order.
    pub fn all(&self) -> Vec<ObjectKey> {
        let mut keys: Vec<ObjectKey> = self.numbers.keys().map(|key| ObjectKey::clone(key)).collect();
        keys.sort();
        keys
    }

    /// The objects that have to do with one that may not be known yet, the nearest first, at most [`MOST`].
    pub fn of(&self, key: &ObjectKey, text: &str) -> Vec<&ObjectKey> {
        let Ok(object) = serde_json::from_str::<Value>(text) else { return Vec::new() };
        let mut found = Found { seen: BTreeSet::new(), order: Vec::new() };
        let mut words = words(&object);
        words.push(hash(&key.name));
        self.gather(&words, &mut found);
        for few in self.kinds.values().filter(|kind| kind.len() <= FEW) {
            found.extend(few);
        }
        // A host names its InfraEnv, which names its cluster, whose install object bears its name.
        let mut begin = 0;
        for _ in 0..2 {
            let end = found.order.len();
            for at in begin..end {
                if let Some(Known { key, words, .. }) = self.objects.get(&found.order[at]) {
                    for word in words.iter().chain([&hash(&key.name)]) {
                        found.extend(self.names.get(word).into_iter().flatten().take(COMMON));
                    }
                }
            }
            begin = end;
        }
        found.order.iter().take(MOST).filter_map(|number| Some(&*self.objects.get(number)?.key)).collect()
    }

    fn gather(&self, words: &[Word], found: &mut Found) {
        for word in words {
            found.extend(self.words.get(word).into_iter().flat_map(Bearers::few));
            found.extend(self.names.get(word).into_iter().flatten().take(COMMON));
        }
    }
}

struct Found {
    seen: BTreeSet<u32>,
    order: Vec<u32>,
}

impl Found {
    fn extend<'a>(&mut self, numbers: impl IntoIterator<Item = &'a u32>) {
        for number in numbers {
            if self.order.len() < MOST && self.seen.insert(*number) {
                self.order.push(*number);
            }
        }
    }
}

/// The words of an object, each once. Type and namespace are no words: everybody shares them.
fn words(object: &Value) -> Vec<Word> {
    let mut words = BTreeSet::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        match name.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => {
                for (name, value) in value.as_object().into_iter().flatten().filter(|(name, _)| *name != "namespace") {
                    // A node label is a word by its key.
                    if name == "labels" || name == "annotations" {
                        value.as_object().into_iter().flatten().for_each(|(key, _)| add(key, &mut words));
                    }
                    collect(value, &mut words);
                }
            }
            _ => collect(value, &mut words),
        }
    }
    words.into_iter().collect()
}

fn collect(value: &Value, words: &mut BTreeSet<Word>) {
    match value {
        Value::String(text) => add(text, words),
        Value::Array(items) => items.iter().for_each(|item| collect(item, words)),
        Value::Object(map) => map.values().for_each(|value| collect(value, words)),
        _ => {}
    }
}

fn add(text: &str, words: &mut BTreeSet<Word>) {
    if text.is_empty() || text.len() > LONGEST || text.contains(char::is_whitespace) {
        return;
    }
    words.insert(hash(text));
    // `namespace/name` and `192.0.2.1/24`; a URL's parts are words as well.
    if text.contains('/') {
        words.extend(text.split('/').filter(|part| part.len() > 2).map(hash));
    }
}

/// Letter case does not tell MAC addresses apart.
fn hash(text: &str) -> Word {
    let mut hasher = DefaultHasher::new();
    text.to_ascii_lowercase().hash(&mut hasher);
    hasher.finish() as Word
}

fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(kind: &str, name: &str) -> ObjectKey {
        ObjectKey { group: "g".into(), kind: kind.into(), namespace: "site".into(), name: name.into() }
    }

    fn host(number: usize) -> String {
        let mac = format!("52:54:00:00:{:02x}:{:02x}", number / 256, number % 256);
        json!({"metadata": {"name": format!("h{number}"), "labels": {"env": "north"}}, "spec": {"mac": mac, "role": "worker"}})
            .to_string()
    }

    fn world(hosts: usize) -> Neighbours {
        let mut neighbours = Neighbours::default();
        for number in 0..hosts {
            neighbours.update(&key("Host", &format!("h{number}")), Some(&host(number)));
        }
        let env = json!({"metadata": {"name": "north"}, "spec": {"cluster": "c1"}}).to_string();
        neighbours.update(&key("Env", "north"), Some(&env));
        for number in 0..50 {
            let cluster = json!({"metadata": {"name": format!("c{number}")}}).to_string();
            neighbours.update(&key("Cluster", &format!("c{number}")), Some(&cluster));
        }
        neighbours
    }

    fn names(neighbours: &Neighbours, text: &str) -> Vec<String> {
        let mut found: Vec<String> =
            neighbours.of(&key("Host", "new"), text).iter().map(|key| format!("{}/{}", key.kind, key.name)).collect();
        found.sort();
        found
    }

    #[test]
    fn a_shared_address_and_named_objects_are_found_among_many() {
        let neighbours = world(1000);
        let new = json!({"metadata": {"name": "new", "labels": {"env": "north"}}, "spec": {"mac": "52:54:00:00:01:02", "role": "worker"}});
        // The other host with the address, the environment by its name, the cluster by the environment.
        assert_eq!(names(&neighbours, &new.to_string()), ["Cluster/c1", "Env/north", "Host/h258"]);
    }

    #[test]
    fn what_is_forgotten_is_found_no_more() {
        let mut neighbours = world(100);
        neighbours.update(&key("Host", "h3"), None);
        neighbours.update(&key("Env", "north"), None);
        let new =
            json!({"metadata": {"name": "new", "labels": {"env": "north"}}, "spec": {"mac": "52:54:00:00:00:03"}});
        assert_eq!(names(&neighbours, &new.to_string()), Vec::<String>::new());
    }

    #[test]
    fn there_are_never_too_many() {
        let neighbours = world(2000);
        let all: Vec<String> = (0..2000).map(|number| format!("h{number}")).collect();
        let greedy = json!({"metadata": {"name": "greedy"}, "spec": {"names": all}}).to_string();
        assert_eq!(neighbours.of(&key("Host", "greedy"), &greedy).len(), MOST);
    }
}
