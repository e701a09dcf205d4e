//! The decision itself, in the order of [`plan_rollout`]: slots, failures, stages, budgets, and what follows for people.

use super::*;

#[cfg(test)]
mod tests;

/// Decides. Total and deterministic: every choice is made here.
pub fn plan_rollout(situation: &Situation) -> Rollout {
    let mut plan = Plan::new(situation);
    plan.judge_slots();
    plan.judge_failures();
    plan.let_go_of_untaken();
    plan.give_slots();
    plan.tell()
}

/// A slot that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Held,
    Lost,
    Over(Ended),
}

struct Group<'a> {
    label: String,
    /// Of a policy.
    policy: Option<&'a str>,
    limit: usize,
    /// For upkeep.
    upkeep: usize,
    out: usize,
    /// Not ready, and not by what this group is about: only upkeep minds them.
    down: usize,
    /// Back from a bad change of this policy: whoever gets the same minds them.
    harmed: usize,
}

/// How a group counts a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Up,
    Out,
    Down,
    Harmed,
}

/// What a node takes from a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// It does its work.
    Up,
    /// It is dead or not ready.
    Down,
    /// It holds a slot, or says that it tries.
    Busy,
}

/// How far a policy is.
struct Stage<'a> {
    /// A canary is not finished.
    canaries_undone: bool,
    /// One of them has it. Nobody follows canaries that are away.
    proved: bool,
    /// The first wave that is not finished.
    wave: Option<(usize, bool, &'a str)>,
}

struct Plan<'a> {
    situation: &'a Situation<'a>,
    by_id: ById<'a>,
    slots: HashMap<&'a str, (&'a Slot, Fate)>,
    policies: HashMap<&'a str, &'a Policy>,
    canaries: HashMap<&'a str, BTreeSet<&'a str>>,
    /// Policies that are halted, with the nodes they failed on.
    failed: HashMap<&'a str, BTreeSet<&'a str>>,
    halted: BTreeSet<&'a str>,
    stages: HashMap<&'a str, Stage<'a>>,
    groups: Vec<Group<'a>>,
    groups_of: HashMap<&'a str, Vec<usize>>,
    rollout: Rollout,
}

impl<'a> Plan<'a> {
    fn new(situation: &'a Situation<'a>) -> Plan<'a> {
        let by_id: ById<'a> = situation.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let policies = situation.policies.iter().map(|policy| (policy.name.as_str(), policy)).collect();
        Plan {
            situation,
            by_id,
            slots: HashMap::new(),
            policies,
            canaries: HashMap::new(),
            failed: HashMap::new(),
            halted: BTreeSet::new(),
            stages: HashMap::new(),
            groups: Vec::new(),
            groups_of: HashMap::new(),
            rollout: Rollout::default(),
        }
    }

    fn judge_slots(&mut self) {
        for slot in self.situation.slots {
            let node = self.by_id.get(slot.node.as_str()).copied();
            let fate = judge_slot(slot, node, self.situation.now);
            if let (Fate::Over(ended), Some(node)) = (fate, node)
                && let Some(loss) = loss_of(slot, node, ended)
            {
                self.rollout.failures.insert(node.id.clone(), loss);
            }
            self.slots.insert(&slot.node, (slot, fate));
        }
        for policy in self.situation.policies {
            if let Some(first) = self.choose_canaries(policy) {
                self.canaries.insert(&policy.name, first);
            }
        }
    }

    /// A number of canaries means nodes that can go; which they are stays the same while they are at it.
    fn choose_canaries(&self, policy: &'a Policy) -> Option<BTreeSet<&'a str>> {
        let able = |id: &&str| {
            let node = self.by_id.get(*id).filter(|node| node.ready || node.has(policy));
            node.is_some() || self.slots.get(*id).is_some_and(|(_, fate)| !matches!(fate, Fate::Over(_)))
        };
        Some(match policy.canary.as_ref()? {
            Canary::Count(count) => policy.members.iter().map(String::as_str).filter(able).take(*count).collect(),
            Canary::Nodes(nodes) => {
                policy.members.iter().filter(|id| nodes.contains(*id)).map(String::as_str).collect()
            }
        })
    }

    /// Where a node stands before budgets and stages are asked.
    fn standing(&self, node: &Node) -> Standing {
        match self.slots.get(node.id.as_str()) {
            Some((Slot { holder: Holder::Change { .. }, .. }, Fate::Held)) => return Standing::Going,
            Some((_, Fate::Lost)) => return Standing::Lost,
            _ => {}
        }
        let Some(wished) = &node.wished else { return Standing::Unheard };
        let given_up = node.lost.as_ref().is_some_and(|lost| lost.given_up && lost.loss.revision == wished.revision);
        let Some(told) = node.tells_of(&wished.revision) else {
            return if given_up { Standing::Failed(LOST.into()) } else { Standing::Unheard };
        };
        match &told.phase {
            Phase::Applied => Standing::Settled,
            Phase::RolledBack(why) | Phase::Refused(why) => Standing::Failed(why.clone()),
            _ if given_up => Standing::Failed(LOST.into()),
            Phase::Drifted(_) if !wished.repair => Standing::Settled,
            // Without a slot only when somebody took the record away: it is out all the same.
            Phase::Trying => Standing::Going,
            Phase::Planned if told.disruption == Disruption::None => Standing::Free,
            Phase::Planned | Phase::Drifted(_) => match node.ready {
                true => Standing::Waiting(Reason::Budget { of: String::new(), limit: 0 }),
                false => Standing::Waiting(Reason::NotReady),
            },
        }
    }

    fn judge_failures(&mut self) {
        for node in self.situation.nodes {
            let standing = self.standing(node);
            let tried: Vec<&PolicyReference> = match (&standing, self.slots.get(node.id.as_str())) {
                (Standing::Failed(_), _) => node.changing().collect(),
                (Standing::Lost, Some((Slot { holder: Holder::Change { policies, .. }, .. }, _))) => {
                    policies.iter().filter(|policy| !node.applied.contains(policy)).collect()
                }
                _ => Vec::new(),
            };
            for reference in tried {
                let known = self.policies.get_key_value(reference.name.as_str());
                if let Some((name, policy)) = known
                    && policy.generation == reference.generation
                {
                    self.failed.entry(name).or_default().insert(&node.id);
                }
            }
            self.rollout.nodes.insert(node.id.clone(), standing);
        }
        for policy in self.situation.policies {
            let Some(failed) = self.failed.get(policy.name.as_str()) else { continue };
            let first = self.canaries.get(policy.name.as_str());
            let canary = first.is_some_and(|first| first.iter().any(|node| failed.contains(node)));
            if canary || failed.len() >= policy.budget.written(policy.members.len()) {
                self.halted.insert(&policy.name);
                if policy.revert && !policy.withdrawn {
                    let (name, generation) = (policy.name.clone(), policy.generation);
                    self.rollout.withdraw.push(PolicyReference { name, generation });
                }
            }
        }
    }

    /// A slot that nobody took is not needed by a node that must wait now.
    fn let_go_of_untaken(&mut self) {
        let untaken: Vec<&'a str> = self
            .slots
            .iter()
            .filter(|(_, (slot, fate))| {
                !slot.taken && *fate == Fate::Held && matches!(slot.holder, Holder::Change { .. })
            })
            .map(|(node, _)| *node)
            .collect();
        for id in untaken {
            let Some(node) = self.by_id.get(id).copied() else { continue };
            let halted = node.changing().any(|reference| {
                self.halted.contains(reference.name.as_str())
                    || self.policies.get(reference.name.as_str()).is_some_and(|policy| policy.paused)
            });
            if let (true, Some((_, fate))) = (halted, self.slots.get_mut(id)) {
                *fate = Fate::Over(Ended::NotTaken);
                let standing = self.standing(node);
                self.rollout.nodes.insert(id.to_owned(), standing);
            }
        }
    }

    /// Why a node must not begin, by stages of the policies that change. With `only`, the stages of that policy alone.
    fn stage(&self, node: &Node, only: Option<&str>) -> Option<Reason> {
        let mut changing: Vec<&PolicyReference> = node.changing().collect();
        changing.sort();
        let policies: Vec<&Policy> =
            changing.iter().filter_map(|reference| self.policies.get(reference.name.as_str()).copied()).collect();
        for policy in &policies {
            if self.halted.contains(policy.name.as_str()) {
                return Some(Reason::Halted(policy.name.clone()));
            }
            if policy.paused {
                return Some(Reason::Paused(policy.name.clone()));
            }
        }
        // Its turn was before, and others may wait for the place it keeps.
        if self.lost_with(node).next().is_some() {
            return None;
        }
        policies.into_iter().find_map(|policy| self.stage_of(node, policy, only.is_none_or(|only| only == policy.name)))
    }

    /// Why a policy makes a node wait for others. Loosely, nobody waits for nodes that wait themselves.
    fn stage_of(&self, node: &Node, policy: &Policy, strictly: bool) -> Option<Reason> {
        let stage = self.stages.get(policy.name.as_str())?;
        if let Some(first) = self.canaries.get(policy.name.as_str()).filter(|first| !first.is_empty()) {
            if first.contains(node.id.as_str()) {
                return None;
            }
            let waits = match strictly {
                true => stage.canaries_undone || !stage.proved,
                false => !stage.canaries_undone && !stage.proved,
            };
            if waits {
                return Some(Reason::Canary(policy.name.clone()));
            }
        }
        let waves = policy.waves.as_ref().filter(|_| strictly)?;
        let first = stage.wave.filter(|first| *first < wave(waves, node))?;
        Some(Reason::Wave { policy: policy.name.clone(), wave: first.2.to_owned() })
    }

    /// How far each policy is, once for all nodes.
    fn count_stages(&mut self) {
        for policy in self.situation.policies {
            let undone = |id: &str| self.by_id.get(id).copied().filter(|node| !self.is_done(node, policy));
            let first = self.canaries.get(policy.name.as_str());
            let mut canaries = first.into_iter().flatten();
            let has = |id: &&str| self.by_id.get(*id).is_some_and(|canary| canary.has(policy));
            let proved = canaries.clone().any(has);
            let canaries_undone = canaries.any(|id| undone(id).is_some());
            let order = policy.waves.as_ref();
            let wave = order.and_then(|order| {
                policy.members.iter().filter_map(|id| undone(id)).map(|node| wave(order, node)).min()
            });
            self.stages.insert(&policy.name, Stage { canaries_undone, proved, wave });
        }
    }

    /// Whether later stages need not wait for this node.
    fn is_done(&self, node: &Node, policy: &Policy) -> bool {
        let failed = self.failed.get(policy.name.as_str()).is_some_and(|failed| failed.contains(node.id.as_str()));
        // A node that is not ready is skipped, unless it is this change that it is busy with.
        let going = matches!(self.rollout.nodes.get(&node.id), Some(Standing::Going));
        node.has(policy) || failed || node.refused.contains_key(&policy.name) || (!node.ready && !going)
    }

    fn weight(&self, node: &Node) -> Weight {
        let fate = self.slots.get(node.id.as_str()).map(|(_, fate)| *fate);
        let trying = node.told.as_ref().is_some_and(|told| told.phase == Phase::Trying);
        match fate {
            Some(Fate::Lost) => Weight::Down,
            Some(Fate::Held) => Weight::Busy,
            _ if trying => Weight::Busy,
            _ if node.ready => Weight::Up,
            _ => Weight::Down,
        }
    }

    /// The policies a node shall get and came back without, now or before.
    fn lost_with<'n>(&'n self, node: &'n Node) -> impl Iterator<Item = &'n PolicyReference> {
        let losses = [self.rollout.failures.get(&node.id), node.lost.as_ref().map(|lost| &lost.loss)];
        node.changing().filter(move |policy| losses.iter().flatten().any(|loss| loss.policies.contains(policy)))
    }

    /// Whether what a policy says now was bad for a node.
    fn is_harmed(&self, node: &Node, policy: &str) -> bool {
        let failed = self.failed.get(policy).is_some_and(|failed| failed.contains(node.id.as_str()));
        failed || self.lost_with(node).any(|lost| lost.name == policy)
    }

    fn place(&self, node: &Node, policy: Option<&str>) -> Place {
        match (self.weight(node), policy) {
            (Weight::Busy, _) => Place::Out,
            (Weight::Down, Some(policy)) if self.is_suspect(node, policy) => Place::Out,
            (Weight::Down, _) => Place::Down,
            (Weight::Up, Some(policy)) if self.is_harmed(node, policy) => Place::Harmed,
            (Weight::Up, _) => Place::Up,
        }
    }

    /// Whether a group lets a node go no more.
    fn is_full(&self, group: &Group, node: &Node, holder: &Holder) -> bool {
        let place = self.place(node, group.policy);
        // Whoever is counted already takes nothing more from anybody.
        match holder {
            Holder::Upkeep(_) => {
                let more = usize::from(matches!(place, Place::Up | Place::Harmed));
                group.out + group.down + more > group.upkeep
            }
            Holder::Change { .. } => {
                let same = group.policy.is_some_and(|policy| is_changing(node, policy));
                let harmed = if same && place != Place::Harmed { group.harmed } else { 0 };
                let more = usize::from(place != Place::Out);
                group.out + harmed + more > group.limit
            }
        }
    }

    /// Whether a node that is down may be so because of what a policy says now: it tries that, tried it, or has it.
    fn is_suspect(&self, node: &Node, policy: &str) -> bool {
        if self.is_harmed(node, policy) {
            return true;
        }
        let Some(policy) = self.policies.get(policy) else { return false };
        let same =
            |reference: &PolicyReference| reference.name == policy.name && reference.generation == policy.generation;
        let tried = self.slots.get(node.id.as_str()).is_some_and(|(slot, fate)| match &slot.holder {
            Holder::Change { policies, .. } => *fate == Fate::Lost && policies.iter().any(same),
            Holder::Upkeep(_) => false,
        });
        tried || node.has(policy)
    }

    fn count_groups(&mut self) {
        let mut members: BTreeMap<(u8, &'a str), BTreeSet<&'a str>> = BTreeMap::new();
        for node in self.situation.nodes {
            members.entry((1, &node.pool)).or_default().insert(&node.id);
            for reference in &node.applied {
                members.entry((0, &reference.name)).or_default().insert(&node.id);
            }
        }
        for policy in self.situation.policies {
            let known = policy.members.iter().filter_map(|id| self.by_id.get_key_value(id.as_str()));
            members.entry((0, &policy.name)).or_default().extend(known.map(|(id, _)| *id));
        }
        for ((kind, name), nodes) in members {
            let (label, budget, upkeep) = match kind {
                0 => {
                    let budget = self.policies.get(name).map(|policy| policy.budget).unwrap_or_default();
                    (format!("policy {name}"), budget, budget)
                }
                _ => {
                    let written = self.situation.pools.get(name).copied();
                    let unwritten = Budget::Count(usize::MAX);
                    match name {
                        "" => ("all nodes without a pool".into(), unwritten, unwritten),
                        _ => {
                            (format!("pool {name}"), written.unwrap_or(unwritten), written.unwrap_or(Budget::Count(1)))
                        }
                    }
                }
            };
            let policy = (kind == 0).then_some(name);
            let (mut out, mut suspect, mut down, mut harmed) = (0, 0, 0, 0);
            for node in nodes.iter().filter_map(|id| self.by_id.get(id)) {
                match self.place(node, policy) {
                    Place::Up => {}
                    Place::Out => {
                        out += 1;
                        suspect += usize::from(self.weight(node) == Weight::Down);
                    }
                    Place::Down => down += 1,
                    Place::Harmed => harmed += 1,
                }
            }
            for id in &nodes {
                self.groups_of.entry(id).or_default().push(self.groups.len());
            }
            // Of those that live, too, one always stays.
            let living = nodes.len() - suspect - down;
            let limit = budget.among(nodes.len()).min(suspect + living.saturating_sub(1).max(1));
            let upkeep = upkeep.among(nodes.len());
            self.groups.push(Group { label, policy, limit, upkeep, out, down, harmed });
        }
    }

    fn give_slots(&mut self) {
        self.count_stages();
        self.count_groups();
        let mut waiting: Vec<(&'a Node, Holder)> = Vec::new();
        for node in self.situation.nodes {
            // Also when the one before ends just now: its record has to go first.
            if self.slots.contains_key(node.id.as_str()) {
                continue;
            }
            if let Some(upkeep) = node.upkeep {
                waiting.push((node, Holder::Upkeep(upkeep)));
            } else if let (Some(Standing::Waiting(Reason::Budget { .. })), Some(wished)) =
                (self.rollout.nodes.get(&node.id), &node.wished)
            {
                let (revision, policies) = (wished.revision.clone(), wished.policies.clone());
                waiting.push((node, Holder::Change { revision, policies }));
            }
        }
        waiting.sort_by(|a, b| a.0.id.cmp(&b.0.id));
        let staged = self.give(&waiting, None);
        // Everything that could move stands in the way of something else: the stages of the first policy alone count.
        let moving = self.slots.values().any(|(_, fate)| *fate == Fate::Held)
            || self.situation.nodes.iter().any(|node| {
                node.ready
                    && matches!(
                        self.rollout.nodes.get(&node.id),
                        Some(Standing::Unheard | Standing::Free | Standing::Going)
                    )
            });
        if !moving
            && self.rollout.grants.is_empty()
            && let Some(first) = staged.first()
        {
            let first = first.clone();
            self.give(&waiting, Some(&first));
        }
    }

    /// Gives what can be given. Says which policies' stages kept somebody waiting.
    fn give(&mut self, waiting: &[(&'a Node, Holder)], only: Option<&str>) -> BTreeSet<String> {
        let mut staged = BTreeSet::new();
        for (node, holder) in waiting {
            if matches!(holder, Holder::Change { .. })
                && let Some(reason) = self.stage(node, only)
            {
                if let Reason::Canary(policy) | Reason::Wave { policy, .. } = &reason {
                    staged.insert(policy.clone());
                }
                self.rollout.nodes.insert(node.id.clone(), Standing::Waiting(reason));
                continue;
            }
            let groups = self.groups_of.get(node.id.as_str()).cloned().unwrap_or_default();
            let full = groups.iter().map(|index| &self.groups[*index]).find(|group| self.is_full(group, node, holder));
            if let Some(Group { label, limit, .. }) = full {
                let reason = Reason::Budget { of: label.clone(), limit: *limit };
                if matches!(holder, Holder::Change { .. }) {
                    self.rollout.nodes.insert(node.id.clone(), Standing::Waiting(reason));
                }
                continue;
            }
            for index in groups {
                let place = self.place(node, self.groups[index].policy);
                let group = &mut self.groups[index];
                match place {
                    Place::Out => continue,
                    Place::Up => {}
                    Place::Down => group.down -= 1,
                    Place::Harmed => group.harmed -= 1,
                }
                group.out += 1;
            }
            if matches!(holder, Holder::Change { .. }) {
                self.rollout.nodes.insert(node.id.clone(), Standing::Going);
            }
            self.rollout.grants.insert(node.id.clone(), holder.clone());
        }
        staged
    }

    fn tell(mut self) -> Rollout {
        for (node, (slot, fate)) in &self.slots {
            match fate {
                Fate::Over(ended) => drop(self.rollout.releases.insert((*node).to_owned(), *ended)),
                Fate::Held => {
                    self.rollout.next = Some(self.rollout.next.map_or(slot.expires, |next| next.min(slot.expires)));
                }
                Fate::Lost => {}
            }
        }
        for policy in self.situation.policies {
            let halted = self.halted.contains(policy.name.as_str());
            let mut progress = Progress { halted, ..Progress::default() };
            let mut enactments = BTreeMap::new();
            for id in &policy.members {
                let Some(node) = self.by_id.get(id.as_str()) else { continue };
                progress.matching += 1;
                progress.ready += usize::from(node.ready);
                progress.out += usize::from(self.weight(node) != Weight::Up);
                let Some(enactment) = self.enactment(node, policy, halted) else { continue };
                match &enactment {
                    Enactment::Available => progress.available += 1,
                    Enactment::Failing(_) => progress.failed += 1,
                    Enactment::Aborted | Enactment::Withdrawn => progress.aborted += 1,
                    Enactment::Pending(_) => progress.pending += 1,
                    Enactment::Progressing(_) => {}
                }
                enactments.insert(id.clone(), enactment);
            }
            self.rollout.policies.insert(policy.name.clone(), progress);
            self.rollout.enactments.insert(policy.name.clone(), enactments);
        }
        self.rollout
    }

    fn enactment(&self, node: &Node, policy: &Policy, halted: bool) -> Option<Enactment> {
        if policy.withdrawn {
            return Some(Enactment::Withdrawn);
        }
        if let Some(why) = node.refused.get(&policy.name) {
            return Some(Enactment::Failing(format!("failure generating desiredState and capturedStates: {why}")));
        }
        if node.has(policy) {
            return Some(Enactment::Available);
        }
        let failed = self.failed.get(policy.name.as_str()).is_some_and(|failed| failed.contains(node.id.as_str()));
        Some(match self.rollout.nodes.get(&node.id)? {
            Standing::Lost if failed => Enactment::Failing(LOST.into()),
            Standing::Failed(why) => Enactment::Failing(why.clone()),
            Standing::Going => Enactment::Progressing("Applying desired state"),
            _ if !node.ready => return None,
            _ if halted => Enactment::Aborted,
            Standing::Waiting(reason) => Enactment::Pending(reason.clone()),
            Standing::Settled | Standing::Free | Standing::Unheard | Standing::Lost => {
                Enactment::Progressing("Waiting for the plan of the node")
            }
        })
    }
}

/// How long after the end of its slot a node that is not ready may still be booting, in seconds.
const LONGEST_BOOT: i64 = 1800;

/// What is said of a node that did not come back from a change.
const LOST: &str = "the node was lost while it tried the change";

fn judge_slot(slot: &Slot, node: Option<&Node>, now: Moment) -> Fate {
    let Some(node) = node else { return Fate::Over(Ended::Gone) };
    let revision = match &slot.holder {
        Holder::Upkeep(upkeep) if node.upkeep == Some(*upkeep) => {
            let dead = !node.ready && now.0 >= slot.expires.0.saturating_add(LONGEST_BOOT);
            return if dead { Fate::Lost } else { Fate::Held };
        }
        Holder::Upkeep(_) => return Fate::Over(Ended::NotAsked),
        Holder::Change { revision, .. } => revision,
    };
    let about = node.tells_of(revision);
    if about.is_some_and(|told| is_final(&told.phase)) {
        return Fate::Over(Ended::Finished);
    }
    let wished = node.wished.as_ref().map(|wished| &wished.revision);
    let over = now >= slot.expires;
    if !slot.taken {
        let begun = about.is_some_and(|told| told.phase == Phase::Trying);
        let outdated = over || wished != Some(revision);
        return if outdated && !begun { Fate::Over(Ended::NotTaken) } else { Fate::Held };
    }
    match &node.told {
        // A node tells of one revision at a time: it no longer tries this one. That it was told after the slot was taken
        // follows from the order of things: a slot is given for what was told last.
        Some(told) if told.revision != *revision && wished == Some(&told.revision) && told.at >= slot.renewed => {
            Fate::Over(Ended::CameBack)
        }
        _ if !over => Fate::Held,
        // Back, and still before its change.
        Some(told) if told.revision == *revision && told.phase != Phase::Trying && told.at > slot.expires => {
            Fate::Over(Ended::CameBack)
        }
        _ => Fate::Lost,
    }
}

/// What a node came back without when its slot ended, and what it had come back without before and shall still get.
fn loss_of(slot: &Slot, node: &Node, ended: Ended) -> Option<Loss> {
    let Holder::Change { revision, policies } = &slot.holder else { return None };
    let is_wished = node.wished.as_ref().is_some_and(|wished| wished.revision == *revision);
    let lost = match ended {
        Ended::Finished => node.tells_of(revision).is_some_and(|told| matches!(told.phase, Phase::RolledBack(_))),
        // In time it has not been away: it turned to what is wished now.
        Ended::CameBack => is_wished || node.told.as_ref().is_some_and(|told| told.at >= slot.expires),
        _ => false,
    };
    let before = node.lost.iter().flat_map(|lost| &lost.loss.policies);
    let all: Vec<&PolicyReference> = policies.iter().chain(before).collect();
    let policies: Vec<_> = node.changing().filter(|policy| all.contains(policy)).cloned().collect();
    (lost && (is_wished || !policies.is_empty())).then(|| Loss { revision: revision.clone(), policies })
}

fn is_changing(node: &Node, policy: &str) -> bool {
    node.changing().any(|reference| reference.name == policy)
}

/// What waves are ordered by: the place in the list, then whether there is a value, then the value.
fn wave<'n>(waves: &Waves, node: &'n Node) -> (usize, bool, &'n str) {
    match node.labels.get(&waves.label) {
        None => (usize::MAX, true, "without the label"),
        Some(value) => {
            (waves.order.iter().position(|listed| listed == value).unwrap_or(waves.order.len()), false, value)
        }
    }
}
