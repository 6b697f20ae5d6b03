//! Where the files are: one of the user, one of the project.

use crate::platform::home::{self, SETTINGS_FILE as FILE};
use std::path::{Path, PathBuf};

/// The user's file, whether it is there or not. Without a home there is none.
pub(crate) fn user_file() -> Option<PathBuf> {
    let home = home::path().ok()?;
    std::path::absolute(home.join(FILE)).ok()
}

/// The project's file: in this folder or the nearest above it, up to the root of the repository. Outside of one, only in
/// this folder.
pub(crate) fn project_file(folder: &Path) -> Option<PathBuf> {
    let root = folder
        .ancestors()
        .find(|folder| is_there(&folder.join(".git")))
        .unwrap_or(folder);
    let inside = folder
        .ancestors()
        .take_while(|folder| folder.starts_with(root));
    inside
        .map(|folder| folder.join(FILE))
        .find(|file| is_there(file))
        .filter(|file| !is_user_file(file))
}

/// Someone may work in the home folder itself; its file is not a project's.
fn is_user_file(file: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    user_file().is_some_and(|user| real(&user).is_some() && real(&user) == real(file))
}

/// A file that cannot be looked at is there: it is an error to be reported, not one to be passed over.
pub(crate) fn is_there(path: &Path) -> bool {
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
    fn the_nearest_file_within_the_repository_counts() {
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
    fn outside_of_a_repository_only_the_folder_itself_counts() {
        let folder = tempfile::TempDir::new().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(folder.path().join(FILE), "").unwrap();
        assert_eq!(project_file(folder.path()), Some(folder.path().join(FILE)));
        assert_eq!(project_file(&inner), None);
    }
}
