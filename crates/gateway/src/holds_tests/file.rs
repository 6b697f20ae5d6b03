//! Tests of holds that survive a gateway, and of holds without a file.

use super::*;
use outlast_store::holds as store;

struct TestDir(TempDir);

impl TestDir {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("gateway.db")
    }

    async fn open(&self, seconds: u64) -> TestGateway {
        TestGateway::open(Some(self.path()), seconds).await
    }

    /// Copies the files as they are at this moment, as a killed gateway leaves them.
    fn as_if_killed(&self) -> Self {
        let image = Self::new();
        for name in ["gateway.db", "gateway.db-wal"] {
            std::fs::copy(self.0.path().join(name), image.0.path().join(name)).unwrap();
        }
        image
    }

    fn rows(&self) -> usize {
        rows(&self.path()).len()
    }
}

/// Returns the rows of a file, read while its owner is running.
fn rows(path: &Path) -> Vec<String> {
    let image = TempDir::new().unwrap();
    for suffix in ["", "-wal"] {
        let mut from = path.as_os_str().to_owned();
        from.push(suffix);
        // Without a log there is nothing in it.
        std::fs::copy(&from, image.path().join(format!("gateway.db{suffix}"))).ok();
    }
    let opened = store::Holds::open(&image.path().join("gateway.db"), Box::new(|_| {})).unwrap();
    opened.rows.into_iter().map(|row| row.value).collect()
}

impl TestGateway {
    /// Waits until all pending writes are on the disk; returns whether they are.
    async fn settle(&self) -> bool {
        let file = self.holds.0.file.file().unwrap();
        file.flush().await
    }
}

#[tokio::test]
async fn restart_resumes_held_request_but_not_expired_one() {
    let place = TestDir::new();
    let gateway = place.open(0).await;
    let waits = gateway.begin("waits", "waits");
    let spent = Progress {
        wake: Some(at(4000)),
        ..progress(0, 7)
    };
    waits.update(spent.clone(), None);
    drop(gateway.begin("left", "left"));
    gateway.begin("answered", "answered").finish();
    gateway.holds.close().await;
    drop(waits);

    // Its owner has died at any time of the wait.
    let gateway = place.open(4100).await;
    assert_eq!(gateway.notices(), []);
    assert_eq!(gateway.views(), [("waits".to_owned(), true)]);
    assert!(gateway.resume("left").is_none());
    assert!(gateway.resume("answered").is_none());
    let (hold, taken) = gateway.resume("waits").unwrap();
    assert_eq!(taken, Progress { resent: 1, ..spent });
    hold.finish();
    gateway.holds.close().await;
    assert_eq!(place.rows(), 0);
}

#[tokio::test]
async fn killed_gateway_leaves_all_holds_resumable() {
    let place = TestDir::new();
    let gateway = place.open(0).await;
    let holds: Vec<Hold> = (0..50)
        .map(|number| gateway.begin(&number.to_string(), "live"))
        .collect();
    drop(gateway.begin("left", "left"));
    assert!(gateway.settle().await);
    let image = place.as_if_killed();
    drop(holds);

    let again = image.open(60).await;
    assert_eq!(again.views().len(), 51);
    assert_eq!(again.holds.waiting_count(), 0);
    for number in 0..50 {
        let (hold, progress) = again.resume(&number.to_string()).unwrap();
        assert_eq!((progress.attempts, progress.resent), (1, 1));
        hold.finish();
    }
    // It was left before, and its time goes on; that of the others began when this process started.
    let (kept, _) = again.resume("left").unwrap();
    drop(kept);
    again.holds.close().await;
    assert_eq!(image.rows(), 1);
}

#[tokio::test]
async fn resume_window_counts_across_restart() {
    let (half_an_hour, two_days) = (RESUME_WINDOW.as_secs(), 48 * 3600);
    let place = TestDir::new();
    let gateway = place.open(0).await;
    let told = gateway.begin("told", "told");
    told.update(progress(0, 1), Some(at(9000)));
    let live = gateway.begin("live", "live");
    drop((told, gateway.begin("left", "left")));
    assert!(gateway.settle().await);
    let cases = [
        (half_an_hour, vec!["left", "live", "told"]),
        (half_an_hour + 1, vec!["live", "told"]),
        (9000 + half_an_hour, vec!["live", "told"]),
        // A request that waited may have waited for long when its gateway died.
        (9000 + half_an_hour + 1, vec!["live"]),
        (two_days, vec!["live"]),
        (two_days + 1, vec![]),
    ];
    for (restart, expected) in cases {
        let image = place.as_if_killed();
        let again = image.open(restart).await;
        let shown = again.views();
        let mut ids = ids(&shown);
        ids.sort_unstable();
        assert_eq!(ids, expected, "{restart}");
        // Nobody knows when the client of the waiting request left: at the latest now.
        again.clock.set(restart + half_an_hour);
        let waited = again.resume("live").is_some();
        assert_eq!(waited, restart <= two_days);
        again.holds.close().await;
    }
    drop(live);
}

#[tokio::test]
async fn hold_row_contains_no_prompt_or_credential() {
    let place = TestDir::new();
    let gateway = place.open(0).await;
    let hold = gateway.begin("what was asked in confidence", "id");
    assert!(gateway.settle().await);
    let rows = rows(&place.path());
    assert_eq!(rows.len(), 1);
    assert!(!rows[0].contains("confidence") && !rows[0].contains("mark"));
    drop(hold);
}

#[tokio::test]
async fn ten_thousand_holds_are_written_and_removed_fast() {
    const CROWD: usize = 10_000;
    let place = TestDir::new();
    let gateway = place.open(0).await;
    let one = tokio::time::Instant::now();
    for number in 0..20 {
        let hold = gateway.begin("alone", &number.to_string());
        assert!(gateway.settle().await);
        hold.finish();
        assert!(gateway.settle().await);
    }
    let one = one.elapsed() / 20;
    let begin_all = |gateway: &TestGateway| -> Vec<Hold> {
        let begin = |number: usize| gateway.begin(&number.to_string(), "live");
        (0..CROWD).map(begin).collect()
    };
    let in_memory = TestGateway::open(None, 0).await;
    let unwritten = tokio::time::Instant::now();
    begin_all(&in_memory).into_iter().for_each(Hold::finish);
    let unwritten = unwritten.elapsed();
    let all = tokio::time::Instant::now();
    let holds = begin_all(&gateway);
    assert!(gateway.settle().await);
    assert_eq!(gateway.holds.waiting_count(), CROWD);
    assert_eq!(place.rows(), CROWD);
    holds.into_iter().for_each(Hold::finish);
    assert!(gateway.settle().await);
    let all = all.elapsed();
    assert_eq!(place.rows(), 0);
    // Much less than each for itself, beside the cost without the disk.
    let most = one * 3000 + unwritten * 20;
    assert!(
        all < most,
        "{all:?}, and one alone {one:?}, all without a file {unwritten:?}"
    );
}

#[tokio::test]
async fn damaged_file_is_backed_up_and_bad_rows_removed() {
    let place = TestDir::new();
    std::fs::write(place.path(), "this is no database").unwrap();
    let gateway = place.open(0).await;
    let backup_path = place.path().with_file_name("gateway.db.damaged-1");
    assert_eq!(gateway.notices(), [StoreEvent::Replaced { backup_path }]);
    let kept = gateway.begin("hello", "kept");
    gateway.holds.close().await;
    drop(kept);

    let opened = store::Holds::open(&place.path(), Box::new(|_| {})).unwrap();
    let far = at(1_000_000);
    opened.holds.put("no key of ours", "{}".to_owned(), far);
    let key = "0198c0de000070008000000000000000";
    opened.holds.put(key, "{\"who\":7}".to_owned(), far);
    opened.holds.close().await;
    let gateway = place.open(1).await;
    assert_eq!(ids(&gateway.views()), ["kept"]);
    gateway.holds.close().await;
    assert_eq!(place.rows(), 1);
}

#[tokio::test]
async fn deleted_file_is_rewritten_with_all_holds() {
    let place = TestDir::new();
    let gateway = place.open(0).await;
    let waits = gateway.begin("waits", "waits");
    drop(gateway.begin("left", "left"));
    assert!(gateway.settle().await);
    std::fs::remove_file(place.path()).unwrap();
    let new = gateway.begin("new", "new");
    assert!(gateway.settle().await);
    assert!(gateway.settle().await);
    assert_eq!(place.rows(), 3);
    drop((waits, new));
}

#[tokio::test]
async fn unusable_file_is_reported_once_and_holds_still_work() {
    let folder = TempDir::new().unwrap();
    let in_the_way = folder.path().join("gateway.db");
    std::fs::create_dir(&in_the_way).unwrap();
    let below_a_file = folder.path().join("file").join("gateway.db");
    std::fs::write(folder.path().join("file"), "").unwrap();
    let mut paths = vec![in_the_way, below_a_file];
    if cfg!(target_os = "linux") {
        // Nothing can be created there, by any user.
        paths.push(PathBuf::from("/proc/self/gateway.db"));
    }
    for path in paths {
        let gateway = TestGateway::open(Some(path), 0).await;
        assert!(matches!(
            &gateway.notices()[..],
            [StoreEvent::Disconnected { .. }]
        ));
        drop(gateway.begin("hello", "first"));
        gateway.clock.set(3 * MINUTE.as_secs());
        let (hold, _) = gateway.resume("hello").unwrap();
        // It is tried again, and fails again.
        drop(gateway.begin("other words", "second"));
        tokio::task::yield_now().await;
        hold.finish();
        gateway.holds.close().await;
        assert_eq!(gateway.notices(), []);
    }
}

#[tokio::test]
async fn second_gateway_takes_over_file_after_first_closes() {
    let place = TestDir::new();
    let first = place.open(0).await;
    let theirs = first.begin("hello", "theirs");
    let second = place.open(0).await;
    let said = second.notices();
    let [StoreEvent::Disconnected { why }] = &said[..] else {
        panic!("{said:?}");
    };
    assert!(why.contains("in use by another process"), "{why}");
    assert!(!second.holds.has_abandoned());
    assert!(second.resume("hello").is_none());
    let ours = second.begin("hello", "ours");
    first.holds.close().await;
    drop(theirs);

    second.clock.set(MINUTE.as_secs());
    second.begin("anything", "anything").finish();
    let joined = async {
        while !second.holds.has_abandoned() {
            tokio::task::yield_now().await;
        }
    };
    let joined = tokio::time::timeout(HANG_TIMEOUT, joined).await;
    joined.unwrap();
    assert_eq!(second.notices(), [StoreEvent::Connected]);
    let (taken, progress) = second.resume("hello").unwrap();
    assert_eq!((progress.since, progress.resent), (at(0), 1));
    assert!(second.settle().await);
    assert_eq!(place.rows(), 2);
    drop((ours, taken));
}

#[tokio::test(start_paused = true)]
async fn paused_clock_does_not_block_writes() {
    let place = TestDir::new();
    let clock = Arc::new(TimerClock::new(at(0)));
    let holds = Holds::open(Some(place.path()), clock, Arc::new(|_| {})).await;
    let hold = holds.begin(identity_of("hello"), summary("id"), progress(0, 1));
    tokio::time::sleep(10 * RESUME_WINDOW).await;
    holds.close().await;
    assert_eq!(place.rows(), 1);
    drop(hold);
}
