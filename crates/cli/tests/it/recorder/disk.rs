//! The files that remain of a recording when the power fails.
//!
//! The model: the content of a file is durable once the file was synced after the write, and its name with it. A sync
//! of anything makes earlier removals and renames durable, because journalling file systems keep their order. Of the
//! unsynced bytes, as many survive as a test says, in the order of the writes; the last write may be torn. Not
//! modelled: writes that survive in another order.

use super::{Call, Record};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Files by their names in a folder.
pub(crate) type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Identifies a file independently of its name.
type Id = usize;

/// Files, and which part of them is durable.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    now: State,
    durable: State,
    /// Changes that are not durable yet, in order.
    pending: Vec<Change>,
}

#[derive(Clone, Default)]
struct State {
    names: BTreeMap<PathBuf, Id>,
    contents: Vec<Vec<u8>>,
}

#[derive(Clone)]
enum Change {
    /// A change of the content of a file; a new name belongs to it.
    Content { id: Id, record: Record },
    /// A rename; without a new name the file is removed.
    Name {
        id: Id,
        from: PathBuf,
        to: Option<PathBuf>,
    },
}

// --- after a power loss ---

impl Disk {
    /// Creates a disk on which these files are durable.
    pub(crate) fn of(files: &Files) -> Self {
        let mut disk = Self::default();
        for (path, content) in files {
            let data = content.clone();
            let write = Call::Write { offset: 0, data };
            for call in [Call::Create, write, Call::Sync] {
                let path = path.clone();
                disk.apply(&Record { path, call });
            }
        }
        disk
    }

    /// Returns how many bytes were written and not synced.
    pub(crate) fn unsynced(&self) -> usize {
        let written = |change: &Change| match change {
            Change::Content { record, .. } => match &record.call {
                Call::Write { data, .. } => data.len(),
                _ => 0,
            },
            Change::Name { .. } => 0,
        };
        self.pending.iter().map(written).sum()
    }

    /// Returns the files as the program saw them last, which survive its own death.
    pub(crate) fn files(&self) -> Files {
        self.now.files()
    }

    /// Returns the files after a power loss that this many unsynced bytes survive.
    pub(crate) fn survivors(&self, unsynced: usize) -> Files {
        let (mut state, mut left) = (self.durable.clone(), unsynced);
        for change in &self.pending {
            if left == 0 {
                break;
            }
            match change {
                Change::Content { id, record } => left -= state.change(*id, record, left),
                Change::Name { id, from, to } => state.rename(*id, from, to.as_deref()),
            }
        }
        state.files()
    }
}

// --- recorded changes ---

impl Disk {
    /// Applies a recorded call.
    pub(crate) fn apply(&mut self, record: &Record) {
        match &record.call {
            Call::Output { .. } => {}
            Call::Sync => self.sync(&record.path),
            Call::Remove => self.rename(&record.path, None),
            Call::Rename { to } => self.rename(&record.path, Some(to)),
            Call::Create | Call::Write { .. } | Call::Truncate { .. } => {
                let id = self.id(&record.path);
                self.now.change(id, record, usize::MAX);
                let record = record.clone();
                self.pending.push(Change::Content { id, record });
            }
        }
    }

    fn id(&mut self, path: &Path) -> Id {
        if let Some(id) = self.now.names.get(path) {
            return *id;
        }
        self.now.contents.push(Vec::new());
        self.durable.contents.push(Vec::new());
        self.now.contents.len() - 1
    }

    /// Renames or removes a path; a folder takes its content along.
    fn rename(&mut self, from: &Path, to: Option<&Path>) {
        let names = self.now.names.clone();
        for (name, id) in names.iter().filter(|(name, _)| name.starts_with(from)) {
            let to = to.map(|to| match name.strip_prefix(from).unwrap() {
                rest if rest == Path::new("") => to.to_owned(),
                rest => to.join(rest),
            });
            self.now.rename(*id, name, to.as_deref());
            let (id, from) = (*id, name.clone());
            self.pending.push(Change::Name { id, from, to });
        }
    }

    fn sync(&mut self, path: &Path) {
        self.sync_names();
        if let Some(id) = self.now.names.get(path) {
            self.durable.contents[*id].clone_from(&self.now.contents[*id]);
            self.durable.names.insert(path.to_owned(), *id);
            self.pending.retain(
                |change| !matches!(change, Change::Content { id: other, .. } if other == id),
            );
        } else {
            let inside = self.now.names.iter();
            let inside = inside.filter(|(name, _)| name.parent() == Some(path));
            let inside = inside.map(|(name, id)| (name.clone(), *id));
            self.durable.names.extend(inside);
        }
    }

    fn sync_names(&mut self) {
        let mut gone = Vec::new();
        for change in std::mem::take(&mut self.pending) {
            match change {
                Change::Name { id, from, to } => {
                    self.durable.rename(id, &from, to.as_deref());
                    gone.extend(to.is_none().then_some(id));
                }
                content @ Change::Content { .. } => self.pending.push(content),
            }
        }
        // An earlier write to a removed file must not restore it.
        self.pending
            .retain(|change| !matches!(change, Change::Content { id, .. } if gone.contains(id)));
    }
}

impl State {
    fn files(&self) -> Files {
        let names = self.names.iter();
        names
            .map(|(name, id)| (name.clone(), self.contents[*id].clone()))
            .collect()
    }

    /// Applies a write of at most `most` bytes; returns how many were written.
    fn change(&mut self, id: Id, record: &Record, most: usize) -> usize {
        if !self.names.values().any(|known| *known == id) {
            self.names.insert(record.path.clone(), id);
        }
        let content = &mut self.contents[id];
        match &record.call {
            Call::Write { offset, data } => {
                let data = &data[..data.len().min(most)];
                let end = offset + data.len();
                content.resize(content.len().max(end), 0);
                content[*offset..end].copy_from_slice(data);
                return data.len();
            }
            Call::Truncate { length } => content.resize(*length, 0),
            _ => {}
        }
        0
    }

    fn rename(&mut self, id: Id, from: &Path, to: Option<&Path>) {
        self.names.remove(from);
        if let Some(to) = to {
            self.names.insert(to.to_owned(), id);
        }
    }
}

// --- real folders ---

/// Reads the files below a folder, without SQLite's shared memory, which is rebuilt.
pub(crate) fn read(folder: &Path) -> Files {
    let mut files = Files::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let Ok(entries) = fs::read_dir(&next) else {
            continue;
        };
        for path in entries.map(|entry| entry.unwrap().path()) {
            let name = path.strip_prefix(folder).unwrap().to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if !name.to_str().unwrap().ends_with("-shm") {
                files.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// Writes these files to a folder.
pub(crate) fn write(files: &Files, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for (name, content) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(path: &str, call: Call) -> Record {
        let path = path.into();
        Record { path, call }
    }

    fn wrote(path: &str, offset: usize, text: &str) -> Record {
        let data = text.as_bytes().to_vec();
        record(path, Call::Write { offset, data })
    }

    fn renamed(from: &str, to: &str) -> Record {
        record(from, Call::Rename { to: to.into() })
    }

    fn after(records: &[Record]) -> Disk {
        let mut disk = Disk::default();
        records.iter().for_each(|record| disk.apply(record));
        disk
    }

    /// Formats the files as text for comparison.
    fn shown(files: &Files) -> String {
        let files = files.iter().map(|(name, content)| {
            let content = String::from_utf8_lossy(content);
            format!("{}={content}", name.display())
        });
        files.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn unsynced_writes_are_lost_or_torn() {
        let disk = after(&[
            record("a", Call::Create),
            wrote("a", 0, "first"),
            record("a", Call::Sync),
            wrote("a", 5, "more"),
            record("b", Call::Create),
            wrote("b", 0, "new"),
            wrote("a", 0, "F"),
        ]);
        assert_eq!(disk.unsynced(), 8);
        let table = [
            (0, "a=first"),
            (2, "a=firstmo"),
            (4, "a=firstmore"),
            (5, "a=firstmore b=n"),
            (7, "a=firstmore b=new"),
            (8, "a=Firstmore b=new"),
        ];
        for (unsynced, expected) in table {
            assert_eq!(shown(&disk.survivors(unsynced)), expected, "{unsynced}");
        }
        assert_eq!(disk.files(), disk.survivors(8));
    }

    #[test]
    fn unsynced_file_is_empty_after_synced_rename() {
        let replaced = |records: &[Record]| {
            let mut disk = Disk::of(&Files::from([("a".into(), b"old".to_vec())]));
            records.iter().for_each(|record| disk.apply(record));
            shown(&disk.survivors(0))
        };
        let made = [record("b", Call::Create), wrote("b", 0, "new")];
        let synced = [&made[..], &[record("b", Call::Sync)]].concat();
        let taken = [renamed("b", "a"), record("", Call::Sync)];
        assert_eq!(replaced(&[&made[..], &taken].concat()), "a=");
        assert_eq!(replaced(&[&synced[..], &taken].concat()), "a=new");
        assert_eq!(
            replaced(&[&synced[..], &taken[..1]].concat()),
            "a=old b=new"
        );
    }

    #[test]
    fn removed_file_survives_until_next_sync() {
        let mut disk = after(&[
            record("a", Call::Create),
            wrote("a", 0, "one"),
            record("a", Call::Sync),
            wrote("a", 3, "two"),
            record("a", Call::Remove),
        ]);
        assert_eq!(shown(&disk.survivors(0)), "a=one");
        assert_eq!(shown(&disk.survivors(3)), "a=onetwo");
        assert_eq!(shown(&disk.files()), "");
        disk.apply(&record("b", Call::Create));
        disk.apply(&record("b", Call::Sync));
        assert_eq!(shown(&disk.survivors(3)), "b=");
    }

    #[test]
    fn truncate_and_folder_rename_are_applied() {
        let disk = after(&[
            wrote("folder/a", 2, "cd"),
            record("folder/a", Call::Truncate { length: 3 }),
            record("folder/a", Call::Sync),
            renamed("folder", "other"),
        ]);
        assert_eq!(shown(&disk.files()), "other/a=\0\0c");
        assert_eq!(shown(&disk.survivors(0)), "folder/a=\0\0c");
    }
}
