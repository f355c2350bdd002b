//! A launched process: its environment, its group, its end.

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, Uid};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use ubos_common::id::IdSource;

use super::state::{LaunchError, Launcher};
use crate::token::SessionToken;

/// How often the group of a process that has ended is looked at.
const GROUP_CHECK: Duration = Duration::from_millis(100);

/// How long to wait for the rest of a dead process's output.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A launched process, the leader of a group of its own.
#[derive(Debug)]
pub(in crate::transport::tokio) struct Process {
    pub(in crate::transport::tokio) child: Child,
    /// `None` once it has ended: another group may have the number then.
    group: Option<Pid>,
    pipes: [Option<JoinHandle<()>>; 2],
}

impl Process {
    // impl: OSW-5-2, OSW-5-3
    pub(in crate::transport::tokio) fn start(
        launcher: &Launcher,
        socket: &Path,
        token: &SessionToken,
    ) -> Result<Self, LaunchError> {
        let run_id = IdSource::from_os()?.uuid().to_string();
        let install = install_folder(launcher).unwrap_or_default();
        let home = default_home().unwrap_or_default();
        let mut command = Command::new(&launcher.program);
        command
            .args(&launcher.args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(launcher.envs.iter().map(|(name, value)| (name, value)))
            .env("OPENSENTIENCE_SOCKET_PATH", socket)
            .env("OPENSENTIENCE_SESSION_TOKEN", token.expose())
            .env("OPENSENTIENCE_AGENT_ID", &launcher.agent_id)
            .env("OPENSENTIENCE_RUN_ID", run_id)
            .env("OPENSENTIENCE_HOME", home)
            .env("OPENSENTIENCE_INSTALL_PATH", install)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|source| LaunchError::Spawn {
            program: launcher.program.to_string_lossy().into_owned(),
            source,
        })?;
        let stdout = child.stdout.take().map(|pipe| launcher.output.follow(pipe));
        let stderr = child.stderr.take().map(|pipe| launcher.output.follow(pipe));
        let group = child.id().and_then(|id| i32::try_from(id).ok());
        let group = group.and_then(Pid::from_raw);
        let pipes = [stdout, stderr];
        Ok(Self {
            child,
            group,
            pipes,
        })
    }

    /// Whether the other end of a stream is this process or one of its group.
    pub(in crate::transport::tokio) fn owns(&self, stream: &UnixStream) -> bool {
        let Ok(peer) = rustix::net::sockopt::socket_peercred(stream) else {
            return false;
        };
        let its = (peer.uid, rustix::process::getpgid(Some(peer.pid)).ok());
        is_same(its, (rustix::process::getuid(), self.group))
    }

    /// Waits until the process has ended, and all of its group that it left behind. May be dropped at any time.
    pub(in crate::transport::tokio) async fn gone(&mut self) {
        // It can be waited for, or is gone already.
        let _ = self.child.wait().await;
        while let Some(group) = self.group {
            if rustix::process::test_kill_process_group(group).is_err() {
                // Another group may have the number from now on.
                self.group = None;
            } else {
                tokio::time::sleep(GROUP_CHECK).await;
            }
        }
    }

    /// Asks the group to end where it does not by itself, kills what is left of it after `patience`, and reaps the process.
    pub(in crate::transport::tokio) async fn stop(
        &mut self,
        patience: Duration,
    ) -> Option<ExitStatus> {
        // After a clean goodbye it ends by itself, or it has ended already.
        let grace = patience.min(Duration::from_millis(500)).max(patience / 10);
        let mut status = tokio::time::timeout(grace, self.child.wait()).await;
        if status.is_err() {
            self.signal(Signal::TERM);
            // One that has joined another group since has not heard it; one that has not is asked once.
            let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
            if let Some(pid) = pid.and_then(Pid::from_raw)
                && rustix::process::getpgid(Some(pid)).ok() != self.group
            {
                let _ = rustix::process::kill_process(pid, Signal::TERM);
            }
            status = tokio::time::timeout(patience, self.child.wait()).await;
        }
        // Whatever the process left behind goes with it, and the process wherever it is.
        self.signal(Signal::KILL);
        let _ = self.child.start_kill();
        let status = match status {
            Ok(status) => status.ok(),
            Err(_) => self.child.wait().await.ok(),
        };
        // Its last words count, unless somebody outside the group still holds the pipe.
        for pipe in &mut self.pipes {
            if let Some(reader) = pipe {
                let _ = tokio::time::timeout(LAST_WORDS, &mut *reader).await;
                reader.abort();
            }
            *pipe = None;
        }
        self.group = None;
        status
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // A group that is gone needs no signal.
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }
}

/// A launch that is given up leaves nothing behind, not even what a shell has started.
impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        // Somebody outside the group may hold a pipe open for ever.
        for pipe in self.pipes.iter().flatten() {
            pipe.abort();
        }
    }
}

/// Whether a peer is of the user of this process, and of the group of the one that it launched.
fn is_same((uid, group): (Uid, Option<Pid>), (own, launched): (Uid, Option<Pid>)) -> bool {
    uid == own && launched.is_some() && group == launched
}

/// The whole path of the folder that holds the program: by the path that names it, or by the first folder of the agent's PATH that
/// has it.
fn install_folder(launcher: &Launcher) -> Option<PathBuf> {
    let program = Path::new(&launcher.program);
    let folder = match program.parent()? {
        nameless if nameless.as_os_str().is_empty() => {
            let own = launcher.envs.iter().rev().find(|(name, _)| name == "PATH");
            let path = own.map(|(_, path)| path.clone());
            let path = path.or_else(|| std::env::var_os("PATH"))?;
            std::env::split_paths(&path).find(|folder| folder.join(program).is_file())?
        }
        folder => folder.to_owned(),
    };
    std::path::absolute(folder).ok()
}

fn default_home() -> Option<PathBuf> {
    let own = std::env::var_os("OPENSENTIENCE_HOME").map(PathBuf::from);
    own.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".opensentience")))
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: OSW-4.1-3
    #[test]
    fn a_peer_is_of_the_same_user_and_of_the_group_that_was_launched() {
        let (own, other) = (Uid::from_raw(1_000), Uid::from_raw(1_001));
        let (group, stranger) = (Pid::from_raw(7), Pid::from_raw(8));
        for (peer, is_it) in [
            ((own, group), true),
            ((other, group), false),
            ((own, stranger), false),
            ((own, None), false),
        ] {
            assert_eq!(is_same(peer, (own, group)), is_it, "{peer:?}");
        }
        // One that has ended owns nothing, and a peer that is gone is of no group.
        assert!(!is_same((own, None), (own, None)));
    }

    // spec: OSW-5-3
    #[test]
    fn a_program_stands_where_its_path_or_the_agents_says() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tool"), "").unwrap();
        let install = |program: &str| {
            let launcher = Launcher::new("a", program).env("PATH", "/nowhere");
            install_folder(&launcher.env("PATH", folder.path()))
        };
        assert_eq!(install("tool"), Some(folder.path().to_owned()));
        assert_eq!(install("no-tool"), None);
        assert_eq!(install("/opt/x/tool"), Some("/opt/x".into()));
        let here = std::env::current_dir().unwrap();
        assert_eq!(install("bin/tool"), Some(here.join("bin")));
        // The folder of a shell is found by the path of this process.
        let shell = install_folder(&Launcher::new("a", "sh")).unwrap();
        assert!(shell.join("sh").is_file() && shell.is_absolute());
    }
}
