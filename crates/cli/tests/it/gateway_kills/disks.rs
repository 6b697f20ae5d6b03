//! Full disks, unwritable folders and exhausted file descriptors: requests are still answered.

use super::scene::{
    Gateway, HttpResponse, PendingRequest, ask, command, free_port, lossy, post, provider,
};
use crate::support::{Outlast, run_script_before};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Returns a request that is large enough to be stored in a file while it arrives.
fn long(number: usize) -> Vec<u8> {
    let said = format!("{number:08}").repeat(400_000);
    let body = format!(r#"{{"model":"m","messages":"{said}"}}"#);
    post("/v1/chat/completions", "x-outlast-client: codex\r\n", &body).into_bytes()
}

const ANSWER: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;

/// Starts a provider that refuses each request twice; returns the requests that it accepted.
fn refusing() -> (SocketAddr, Arc<Mutex<Vec<Vec<u8>>>>) {
    let (asked, taken) = (
        Arc::<AtomicUsize>::default(),
        Arc::<Mutex<Vec<_>>>::default(),
    );
    let kept = Arc::clone(&taken);
    let address = provider(move |request, mut stream: TcpStream| {
        let answer = match asked.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => "HTTP/1.1 503 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
            _ => {
                kept.lock().unwrap().push(request);
                let length = ANSWER.len();
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{ANSWER}"
                )
            }
        };
        stream.write_all(answer.as_bytes()).unwrap();
    });
    (address, taken)
}

fn body(request: &[u8]) -> &[u8] {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n");
    &request[end.unwrap() + 4..]
}

/// Starts a gateway with that command, and checks that a large request is held, arrives whole and succeeds, and that
/// the gateway ends with success.
fn serves(
    what: &str,
    prepare: impl FnOnce(&Outlast),
    limited: impl Fn(&Command) -> Command,
) -> String {
    let outlast = Outlast {
        scale: "20",
        ..Outlast::new()
    };
    prepare(&outlast);
    let (provider, taken) = refusing();
    let upstream = format!("http://{provider}");
    let command = command(&outlast, free_port(), &["--upstream", &upstream]);
    let mut gateway = Gateway::by(&mut limited(&command));
    let request = long(7);
    let answer: HttpResponse = ask(&gateway.address, &request);
    assert_eq!(
        (answer.status, answer.text().as_str(), answer.is_whole),
        (200, ANSWER, true),
        "{what}: {}",
        gateway.stderr_so_far()
    );
    let taken = taken.lock().unwrap();
    assert!(body(&taken[0]) == body(&request), "{what}: another body");
    gateway.signal("-TERM");
    let ended = gateway.ended();
    assert_eq!(ended.code, Some(0), "{what}: {}", ended.said);
    ended.said
}

#[test]
fn request_succeeds_when_nothing_can_be_stored() {
    // No file may grow beyond half a kilobyte; writes are refused as on a full disk.
    let said = serves(
        "nothing",
        |_| {},
        |command| run_script_before("trap '' XFSZ; ulimit -f 1", command),
    );
    assert!(
        said.contains("requests that wait are not written down"),
        "{said}"
    );
}

#[test]
fn request_succeeds_when_its_body_cannot_be_stored() {
    // The database has room, a large request has not: it is refused in the middle.
    for kib in [1536, 2560] {
        let limit = format!("trap '' XFSZ; ulimit -f {}", kib * 2);
        let said = serves("some", |_| {}, |command| run_script_before(&limit, command));
        assert!(!said.contains("warning"), "{said}");
    }
}

/// Whether this user can mount file systems and is not bound by permissions.
fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    lossy(&id.stdout).trim() == "0"
}

/// Returns the command in a mount namespace of its own, after the script.
fn mounted(script: &str, command: &Command) -> Command {
    let inner = run_script_before(script, command);
    let mut outer = Command::new("unshare");
    outer
        .args(["--mount", "--propagation", "private"])
        .arg(inner.get_program())
        .args(inner.get_args())
        .current_dir(inner.get_current_dir().unwrap())
        .env_clear();
    let variables = inner.get_envs();
    outer.envs(variables.filter_map(|(name, value)| Some((name, value?))));
    outer
}

#[test]
fn request_succeeds_when_home_disk_is_full() {
    if !is_root() {
        return;
    }
    for filled in [0, 1, 600] {
        let make = |outlast: &Outlast| std::fs::create_dir(outlast.home()).unwrap();
        // All but this many KiB are taken.
        let script = format!(
            "mount -t tmpfs -o size=1m,mode=700 tmpfs \"$OUTLAST_HOME\"; printf '1\\n' > \"$OUTLAST_HOME/VERSION\"; chmod 600 \"$OUTLAST_HOME/VERSION\"; head -c {} /dev/zero > \"$OUTLAST_HOME/filler\" 2> /dev/null",
            (1024 - filled) * 1024
        );
        serves(&format!("{filled} KiB"), make, |command| {
            mounted(&script, command)
        });
    }
}

#[test]
fn request_succeeds_when_home_is_read_only() {
    let prepare = |outlast: &Outlast| {
        // Create the home first with another gateway.
        Gateway::start(outlast, "mock:ok").kill();
        if !is_root() {
            let mut permissions = std::fs::metadata(outlast.home()).unwrap().permissions();
            permissions.set_readonly(true);
            std::fs::set_permissions(outlast.home(), permissions).unwrap();
        }
    };
    let script = "mount --bind \"$OUTLAST_HOME\" \"$OUTLAST_HOME\"; mount -o remount,ro,bind \"$OUTLAST_HOME\"";
    let limited = |command: &Command| match is_root() {
        true => mounted(script, command),
        false => run_script_before(":", command),
    };
    let said = serves("read-only", prepare, limited);
    assert!(said.contains("warning"), "{said}");
}

#[test]
fn gateway_recovers_from_exhausted_file_descriptors() {
    let outlast = Outlast::new();
    let command = command(&outlast, free_port(), &["--upstream", "mock:ok"]);
    let gateway = Gateway::by(&mut run_script_before("ulimit -n 64", &command));
    let request = post(
        "/v1/messages",
        "",
        r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#,
    );
    assert_eq!(ask(&gateway.address, request.as_bytes()).status, 200);
    for _ in 0..3 {
        let crowd: Vec<PendingRequest> = (0..100)
            .map(|_| {
                PendingRequest::send(
                    &gateway.address,
                    b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\n",
                )
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        drop(crowd);
        let answer = ask(&gateway.address, request.as_bytes());
        assert_eq!(answer.status, 200, "{answer:?} {}", gateway.stderr_so_far());
    }
    // Requests that arrive while nothing is free are served later.
    let crowd: Vec<PendingRequest> = (0..60)
        .map(|_| {
            PendingRequest::send(
                &gateway.address,
                b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\n",
            )
        })
        .collect();
    let waiting = PendingRequest::send(&gateway.address, request.as_bytes());
    std::thread::sleep(Duration::from_millis(300));
    drop(crowd);
    assert_eq!(waiting.answer().status, 200);
}
