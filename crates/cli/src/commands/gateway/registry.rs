//! The gateways that run on this machine for this user: a small private file for each, named by its port.
//!
//! Invariant: a file is valid only while the process that wrote it lives; the first process that reads the file of a
//! dead one removes it.

use crate::args::GatewaySelector;
use crate::platform::exit::UsageError;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// A running gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunningGateway {
    pub(super) address: SocketAddr,
    pub(super) pid: u32,
    /// Whether the gateway serves one program only, and ends with it.
    pub(super) for_program: bool,
}

impl RunningGateway {
    /// Returns the address for programs on this machine.
    pub(super) fn url(&self) -> String {
        url(self.address)
    }
}

/// Returns the address at which programs on this machine reach the given listener.
pub(super) fn url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, address.port()))
}

/// The registration file of this gateway; removed on drop.
pub(super) struct Registration(PathBuf);

impl Registration {
    /// Writes the registration file.
    pub(super) fn register(home: &Path, running: &RunningGateway) -> io::Result<Self> {
        let path = home.join(format!("gateway-{}.json", running.address.port()));
        // Only this user can read it.
        let mut draft = tempfile::NamedTempFile::new_in(home)?;
        serde_json::to_writer(&mut draft, running)?;
        draft.persist(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let is_ours = read(&self.0).is_some_and(|running| running.pid == std::process::id());
        if is_ours {
            fs::remove_file(&self.0).ok();
        }
    }
}

fn read(path: &Path) -> Option<RunningGateway> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Returns all running gateways, ordered by port.
pub(super) fn running(home: &Path) -> Vec<RunningGateway> {
    let entries = fs::read_dir(home).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("gateway-") && name.ends_with(".json")
    });
    let mut found: Vec<RunningGateway> = paths
        .filter_map(|path| {
            let running = read(&path)?;
            if is_alive(running.pid) {
                return Some(running);
            }
            fs::remove_file(&path).ok();
            None
        })
        .collect();
    found.sort_by_key(|running| running.address.port());
    found
}

/// Returns the selected gateways, at least one.
pub(super) fn select(
    home: &Path,
    which: GatewaySelector,
) -> Result<Vec<RunningGateway>, UsageError> {
    let mut found = running(home);
    let all = list_ports(&found);
    if let Some(port) = which.port {
        found.retain(|running| running.address.port() == port);
    }
    match (found.is_empty(), all.is_empty()) {
        (false, _) => Ok(found),
        (true, true) => Err(UsageError(
            "no gateway runs; `outlast gateway` starts one".to_owned(),
        )),
        (true, false) => Err(UsageError(format!(
            "no gateway runs on that port; there is one on {all}"
        ))),
    }
}

/// Formats the ports of gateways as a list.
pub(super) fn list_ports(all: &[RunningGateway]) -> String {
    let ports = all.iter().map(|one| one.address.port().to_string());
    ports.collect::<Vec<_>>().join(", ")
}

#[cfg(unix)]
fn is_alive(pid: u32) -> bool {
    use nix::errno::Errno;
    use nix::sys::signal::kill;
    use nix::unistd::Pid;
    let Ok(pid) = i32::try_from(pid) else {
        return false;
    };
    kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH)
}

#[cfg(not(unix))]
fn is_alive(_: u32) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway(port: u16, pid: u32) -> RunningGateway {
        RunningGateway {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            pid,
            for_program: false,
        }
    }

    #[cfg(unix)]
    #[test]
    fn gateway_is_registered_while_it_runs() {
        let home = tempfile::tempdir().unwrap();
        let which = |port| GatewaySelector { port };
        assert!(select(home.path(), which(None)).is_err());
        let own = gateway(4180, std::process::id());
        let left = Registration::register(home.path(), &own).unwrap();
        let parent = gateway(4181, std::os::unix::process::parent_id());
        let _other = Registration::register(home.path(), &parent).unwrap();
        let both = vec![own.clone(), parent.clone()];
        assert_eq!(select(home.path(), which(None)).unwrap(), both);
        assert_eq!(select(home.path(), which(Some(4181))).unwrap(), [parent]);
        let problem = select(home.path(), which(Some(1))).unwrap_err().0;
        assert!(problem.ends_with("4180, 4181"), "{problem}");
        drop(left);
        assert_eq!(running(home.path()).len(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn registration_of_dead_gateway_is_removed() {
        let home = tempfile::tempdir().unwrap();
        // No process has that id.
        let dead = Registration::register(home.path(), &gateway(4180, 0x7fff_fffe)).unwrap();
        assert_eq!(running(home.path()), []);
        assert!(!dead.0.exists());
    }

    #[cfg(unix)]
    #[test]
    fn registration_file_is_private_to_owner() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let left = Registration::register(home.path(), &gateway(4180, std::process::id())).unwrap();
        let mode = fs::metadata(&left.0).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn wildcard_address_maps_to_loopback_url() {
        let table = [
            ("0.0.0.0:80", "http://127.0.0.1:80"),
            ("[::]:80", "http://[::1]:80"),
            ("192.0.2.1:80", "http://192.0.2.1:80"),
        ];
        for (address, reached) in table {
            assert_eq!(url(address.parse().unwrap()), reached);
        }
    }
}
