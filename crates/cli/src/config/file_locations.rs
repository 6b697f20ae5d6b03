//! The locations of the configuration files: one of the user, one of the project.

use crate::platform::home::{self, SETTINGS_FILE as FILE};
use std::path::{Path, PathBuf};

/// Returns the path of the user's file, whether or not it exists; `None` without a home folder.
pub(crate) fn user_file() -> Option<PathBuf> {
    let home = home::path().ok()?;
    std::path::absolute(home.join(FILE)).ok()
}

/// Returns the project's file: in this folder or the nearest above it, up to the root of the repository. Outside of a
/// repository, only this folder counts.
pub(crate) fn project_file(folder: &Path) -> Option<PathBuf> {
    let root = folder
        .ancestors()
        .find(|folder| exists(&folder.join(".git")))
        .unwrap_or(folder);
    let inside = folder
        .ancestors()
        .take_while(|folder| folder.starts_with(root));
    inside
        .map(|folder| folder.join(FILE))
        .find(|file| exists(file))
        .filter(|file| !is_user_file(file))
}

/// Reports whether this is the user's file: a session may work in the home folder itself, whose file is not a project's.
fn is_user_file(file: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    user_file().is_some_and(|user| real(&user).is_some() && real(&user) == real(file))
}

/// Reports whether the path exists. One that cannot be inspected does: it is an error to report, not to pass over.
pub(crate) fn exists(path: &Path) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    match path.symlink_metadata() {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), NotFound | NotADirectory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn nearest_config_file_within_repository_is_used() {
        let folder = tempfile::TempDir::new().unwrap();
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("repository/.git")).unwrap();
        fs::create_dir_all(at("repository/a/b")).unwrap();
        fs::write(at(FILE), "").unwrap();
        assert_eq!(project_file(&at("repository/a/b")), None, "above the root");
        assert_eq!(project_file(&at("repository")), None, "above the root");
        fs::write(at("repository/outlast.toml"), "").unwrap();
        assert_eq!(
            project_file(&at("repository/a/b")),
            Some(at("repository/outlast.toml"))
        );
        fs::write(at("repository/a/outlast.toml"), "").unwrap();
        assert_eq!(
            project_file(&at("repository/a/b")),
            Some(at("repository/a/outlast.toml"))
        );
    }

    #[test]
    fn outside_repository_only_current_folder_is_searched() {
        let folder = tempfile::TempDir::new().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(folder.path().join(FILE), "").unwrap();
        assert_eq!(project_file(folder.path()), Some(folder.path().join(FILE)));
        assert_eq!(project_file(&inner), None);
    }
}
