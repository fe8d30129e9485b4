//! Names that groups share, each stored once.

use std::collections::HashMap;

/// Name of an object of the cluster, with a Service port where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupName<'c> {
    pub namespace: Option<&'c str>,
    pub name: &'c str,
    /// Name of a Service port.
    pub port: Option<&'c str>,
}

/// Index of a name in [`GroupNames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NameId(u32);

/// Index of a name outside the cluster in [`GroupNames`]: a helper or a network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WordId(u32);

/// Distinct names of the entries. Their number is limited by the objects of the cluster, and by the helpers and
/// the network namespaces of the kernel.
#[derive(Clone, Debug, Default)]
pub struct GroupNames<'c> {
    list: Vec<GroupName<'c>>,
    ids: HashMap<GroupName<'c>, NameId>,
    words: Vec<Box<str>>,
    /// Network namespace of the entries that are added.
    pub(super) netns: Option<WordId>,
}

impl<'c> GroupNames<'c> {
    pub(super) fn id(&mut self, name: GroupName<'c>) -> NameId {
        let GroupNames { list, ids, .. } = self;
        *ids.entry(name).or_insert_with(|| {
            list.push(name);
            NameId((list.len() - 1) as u32)
        })
    }

    pub(super) fn word_id(&mut self, name: &str) -> WordId {
        let known = self.words.iter().position(|word| **word == *name);
        let id = known.unwrap_or_else(|| {
            self.words.push(name.into());
            self.words.len() - 1
        });
        WordId(id as u32)
    }

    /// Sets the network namespace of the entries that follow.
    pub fn enter(&mut self, netns: &str) {
        self.netns = Some(self.word_id(netns));
    }

    /// Name of a helper or network namespace; `None` if the id is of another list.
    pub fn word(&self, id: WordId) -> Option<&str> {
        self.words.get(id.0 as usize).map(|name| &**name)
    }

    /// Name of an id; `None` if the id is of another list.
    pub fn get(&self, id: NameId) -> Option<GroupName<'c>> {
        self.list.get(id.0 as usize).copied()
    }
}
