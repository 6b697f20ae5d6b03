//! Resolves a path, and checks whether it leads outside of the working folder.
//!
//! Invariant: links are followed before the check, also links to files that do not exist yet.
//! Not here: protection against concurrent moves. A process that may run commands can move files at any time.

use super::{Context, PathScope};
use std::io;
use std::path::{Path, PathBuf};

/// The number of links that Linux follows.
const MAX_LINKS: u32 = 40;

/// Resolves a path, following all links. A missing file counts as lying where it would be created.
pub(super) fn resolve(directory: &Path, path: &Path) -> io::Result<PathBuf> {
    follow(&directory.join(path), MAX_LINKS)
}

/// Returns the resolved path if it is outside of the folder.
pub(super) fn resolve_outside(directory: &Path, path: &Path) -> io::Result<Option<PathBuf>> {
    let place = resolve(directory, path)?;
    Ok((!is_inside(directory, &place)?).then_some(place))
}

fn is_inside(directory: &Path, place: &Path) -> io::Result<bool> {
    Ok(place.starts_with(directory.canonicalize()?))
}

/// Resolves the path of a running call; an error when it may not go there.
pub(super) fn resolve_in_scope(context: &Context, path: &str) -> Result<PathBuf, String> {
    let said = |error: io::Error| format!("{path}: {error}");
    let place = resolve(&context.directory, Path::new(path)).map_err(said)?;
    let may_go = context.path_scope == PathScope::Anywhere
        || is_inside(&context.directory, &place).map_err(said)?;
    if may_go {
        Ok(place)
    } else {
        let place = place.display();
        Err(format!(
            "{path}: leads outside of the working folder, to {place}"
        ))
    }
}

fn follow(path: &Path, links_left: u32) -> io::Result<PathBuf> {
    let missing = match path.canonicalize() {
        Ok(place) => return Ok(place),
        Err(error) => error,
    };
    if links_left == 0 {
        return Err(missing);
    }
    let Some(parent) = path.parent() else {
        return Err(missing);
    };
    if let Ok(target) = path.read_link() {
        return follow(&parent.join(target), links_left - 1);
    }
    let folder = follow(parent, links_left)?;
    Ok(match path.file_name() {
        Some(name) => folder.join(name),
        // The path ends in `..`.
        None => folder.parent().unwrap_or(&folder).to_owned(),
    })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn path_is_outside_only_if_it_resolves_outside_folder() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let folder = root.join("work");
        fs::create_dir_all(folder.join("sub")).unwrap();
        fs::create_dir(root.join("work-too")).unwrap();
        for (name, target) in [
            ("up", ".."),
            ("down", "sub"),
            ("hanging", "../not-there"),
            ("hanging-inside", "sub/not-there"),
            ("twice", "hanging"),
        ] {
            symlink(target, folder.join(name)).unwrap();
        }
        symlink(&folder, root.join("entrance")).unwrap();
        let table = [
            (".", false),
            ("sub/new/deep/file", false),
            ("sub/../file", false),
            ("down/file", false),
            ("hanging-inside", false),
            ("missing/../file", false),
            ("../entrance/file", false),
            ("..", true),
            ("../work-too/file", true),
            ("up/file", true),
            ("down/../../file", true),
            ("hanging", true),
            ("twice", true),
            ("hanging/file", true),
            ("missing/../../file", true),
            ("/etc/hosts", true),
        ];
        for (path, expected) in table {
            for start in [&folder, &root.join("entrance")] {
                let found = resolve_outside(start, Path::new(path)).unwrap();
                assert_eq!(found.is_some(), expected, "{path}: {found:?}");
            }
        }
    }

    #[test]
    fn symlink_cycle_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        symlink("b", folder.path().join("a")).unwrap();
        symlink("a", folder.path().join("b")).unwrap();
        assert!(resolve(folder.path(), Path::new("a")).is_err());
    }
}
