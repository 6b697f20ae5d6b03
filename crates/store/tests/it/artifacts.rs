//! Artifacts: a read returns the stored content, despite concurrent writers and a failing disk.

use outlast_store::Artifacts;
use outlast_store::Error;
use std::collections::HashSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// The hashes of empty content and of `abc`.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn kept() -> (TempDir, Artifacts) {
    let folder = TempDir::new().unwrap();
    let artifacts = Artifacts::open(&folder.path().join("artifacts")).unwrap();
    (folder, artifacts)
}

fn everything_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(everything_in(&path));
        } else if path.file_name().unwrap() != "lock" {
            found.push(path);
        }
    }
    found
}

fn write_over(path: &Path, content: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, content).unwrap();
}

#[test]
fn artifact_is_read_back_by_its_hash() {
    let (folder, artifacts) = kept();
    assert_eq!(artifacts.put(b"abc").unwrap(), (ABC.to_owned(), 3));
    assert_eq!(artifacts.put(b"").unwrap(), (EMPTY.to_owned(), 0));
    assert_eq!(artifacts.get(ABC).unwrap(), b"abc");
    assert_eq!(artifacts.get(EMPTY).unwrap(), b"");
    let place = folder.path().join("artifacts").join("ba").join(&ABC[2..]);
    assert_eq!(artifacts.path(ABC).unwrap(), place);
    let again = Artifacts::open(&folder.path().join("artifacts")).unwrap();
    assert_eq!(again.get(ABC).unwrap(), b"abc");
    assert_eq!(everything_in(folder.path()).len(), 2);
}

#[test]
fn damaged_artifact_is_an_error_and_put_repairs_size() {
    let (_folder, artifacts) = kept();
    artifacts.put(b"abc").unwrap();
    let place = artifacts.path(ABC).unwrap();
    for content in [&b"abd"[..], b"ab", b"abcabc", b""] {
        write_over(&place, content);
        let error = artifacts.get(ABC).unwrap_err();
        assert!(error.is_corruption(), "{error}");
        assert!(error.to_string().contains(&ABC[2..]), "{error}");
    }
    artifacts.put(b"abc").unwrap();
    assert_eq!(artifacts.get(ABC).unwrap(), b"abc");
    let missing = artifacts.get(EMPTY).unwrap_err().to_string();
    assert!(missing.contains(&EMPTY[2..]), "{missing}");
}

#[test]
fn invalid_hash_is_an_error() {
    let (_folder, artifacts) = kept();
    let upper = ABC.to_uppercase();
    let dots = format!("../{}", &ABC[3..]);
    let split = format!("é{}", &ABC[2..]);
    for text in ["", "ba", "../../secret", &ABC[1..], &upper, &dots, &split] {
        assert!(matches!(
            artifacts.path(text),
            Err(Error::InvalidHash { .. })
        ));
        assert!(matches!(
            artifacts.get(text),
            Err(Error::InvalidHash { .. })
        ));
    }
}

#[test]
fn concurrent_puts_of_same_content_succeed() {
    let (folder, artifacts) = kept();
    let long = b"the same for all ".repeat(5_000);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for number in 0..10 {
                    let own = format!("round {number}");
                    for content in [own.as_bytes(), &long] {
                        let (hash, _) = artifacts.put(content).unwrap();
                        assert_eq!(artifacts.get(&hash).unwrap(), content);
                    }
                }
            });
        }
    });
    assert_eq!(everything_in(folder.path()).len(), 11);
}

#[test]
fn only_unused_old_artifacts_are_removed() {
    const GRACE: Duration = Duration::from_secs(3600);
    let (folder, artifacts) = kept();
    let kept = folder.path().join("artifacts");
    let hashes = [&b"used"[..], b"old", b"again"].map(|content| artifacts.put(content).unwrap().0);
    let [used, old, again] = &hashes;
    for hash in &hashes {
        let file = File::open(artifacts.path(hash).unwrap()).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    artifacts.put(b"again").unwrap();
    artifacts.put(b"new").unwrap();
    for path in ["note.txt", "ab", "drafts/of-a-dead-one"] {
        fs::write(kept.join(path), "not complete").unwrap();
    }
    let used: HashSet<_> = [used.clone()].into();
    assert_eq!(artifacts.remove_unused(&used, GRACE).unwrap(), 1);
    assert!(!artifacts.path(old).unwrap().exists());
    assert!(artifacts.get(again).is_ok());
    assert_eq!(artifacts.remove_unused(&used, Duration::ZERO).unwrap(), 2);
    assert_eq!(artifacts.get(used.iter().next().unwrap()).unwrap(), b"used");
    // Files of others are left alone.
    let left = [kept.join("note.txt"), kept.join("ab")];
    assert!(left.iter().all(|path| path.exists()));
    assert_eq!(everything_in(&kept).len(), 3);
}

#[cfg(unix)]
#[test]
fn artifacts_are_private_and_not_rewritten() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let folder = TempDir::new().unwrap();
    let kept = folder.path().join("artifacts");
    fs::create_dir(&kept).unwrap();
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o755)).unwrap();
    let artifacts = Artifacts::open(&kept).unwrap();
    artifacts.put(b"abc").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let place = artifacts.path(ABC).unwrap();
    assert_eq!(mode(&place), 0o400);
    for folder in [&kept, &kept.join("drafts"), place.parent().unwrap()] {
        assert_eq!(mode(folder), 0o700, "{}", folder.display());
    }
    let inode = || fs::metadata(&place).unwrap().ino();
    let first = inode();
    artifacts.put(b"abc").unwrap();
    assert_eq!(inode(), first);
}

// --- A disk that takes no more ---

/// The folder for the other process: this program once more, which may write only small files.
const PLACE: &str = "OUTLAST_TEST_ARTIFACTS";

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "it is told by its parent where to work"
)]
fn child_process_with_file_size_limit() {
    // In the run of all tests there is nothing to do.
    let Some(place) = std::env::var_os(PLACE) else {
        return;
    };
    let artifacts = Artifacts::open(Path::new(&place)).unwrap();
    let large = vec![b'x'; 1_000_000];
    let error = artifacts.put(&large).unwrap_err();
    assert!(matches!(error, Error::File { .. }), "{error}");
    artifacts.put(b"abc").unwrap();
}

#[cfg(unix)]
#[test]
fn failed_put_leaves_nothing_and_next_put_works() {
    let (folder, artifacts) = kept();
    let place = folder.path().join("artifacts");
    let child = std::process::Command::new("sh")
        // The signal for a file that grows too long is ignored: the write is to fail instead.
        .args(["-c", r#"trap "" 25; ulimit -f 64; exec "$@""#, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "artifacts::child_process_with_file_size_limit"])
        .env(PLACE, &place)
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(said.contains("1 passed"), "{said}");
    assert_eq!(everything_in(&place), [artifacts.path(ABC).unwrap()]);
    assert_eq!(artifacts.get(ABC).unwrap(), b"abc");
}
