//! A PostgreSQL server that a test starts for itself.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ubos_common::os::Clock;
use ubos_common::time::Mono;

/// How long a server may take to start.
const START: Duration = Duration::from_secs(300);

/// A server with a folder of its own, reached through a socket in that folder.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    child: Option<Child>,
    /// Where it listens with TLS, too.
    port: Option<u16>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let mut server = Self::made();
        server.run();
        server
    }

    /// A server that listens on the loopback, too, and takes nobody there without TLS.
    pub(crate) fn start_with_tls(certificate: &str, key: &str) -> Self {
        let mut server = Self::made();
        let data = server.folder.path().join("data");
        let files = [
            ("server.crt", certificate),
            ("server.key", key),
            (
                "pg_hba.conf",
                "local all all trust\nhostssl all all 127.0.0.1/32 trust\n",
            ),
        ];
        for (name, text) in files {
            let file = data.join(name);
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
            if let Some((user, group)) = other_user() {
                chown(&file, Some(user), Some(group)).unwrap();
            }
        }
        // Chosen when it starts.
        server.port = Some(0);
        server.run();
        server
    }

    fn made() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The server refuses to run as root, and is another user then.
        if let Some((user, group)) = other_user() {
            chown(folder.path(), Some(user), Some(group)).unwrap();
        }
        let data = folder.path().join("data");
        let made = command("initdb")
            .args([
                "--no-sync",
                "--auth=trust",
                "--username=agents",
                "--encoding=UTF8",
                "-D",
            ])
            .arg(data)
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        Self {
            folder,
            child: None,
            port: None,
        }
    }

    /// Starts the server where it was killed.
    pub(crate) fn run(&mut self) {
        let clock = Clock::start();
        let is_late = || clock.mono().saturating_since(Mono::ZERO) > START;
        // What the former one has left may still be ending, and is in the way then.
        while !is_late() {
            let mut postgres = command("postgres");
            // The one before may have been taken by another process meanwhile.
            self.port = self.port.map(|_| free_port());
            if let Some(port) = self.port {
                postgres.args(["-c", "ssl=on", "-c", "listen_addresses=127.0.0.1", "-p"]);
                postgres.arg(port.to_string());
            } else {
                postgres.args(["-c", "listen_addresses="]);
            }
            let mut child = postgres
                .arg("-D")
                .arg(self.folder.path().join("data"))
                .arg("-k")
                .arg(self.folder.path())
                // Who is killed loses nothing that the system has, and a disk that others use is slow.
                .args(["-c", "max_connections=64", "-c", "fsync=off"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            while child.try_wait().unwrap().is_none() {
                if self.is_ready() {
                    self.child = Some(child);
                    return;
                }
                if is_late() {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    panic!("PostgreSQL has started and takes nobody within {START:?}");
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("PostgreSQL does not start within {START:?}");
    }

    fn is_ready(&self) -> bool {
        let asked = command("pg_isready")
            .args(["-q", "-U", "agents", "-p"])
            .arg(self.port.unwrap_or(5432).to_string())
            .arg("-h")
            .arg(self.folder.path())
            .status();
        asked.unwrap().success()
    }

    /// Kills the server, as a crash of its machine's system would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Sends a signal to the server and to the processes that it has started for its connections.
    pub(crate) fn signal(&self, signal: &str) {
        let own = self.child.as_ref().unwrap().id();
        let is_of = |line: &str| line.starts_with("PPid:") && line.ends_with(&format!("\t{own}"));
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let children = all.filter(|entry| {
            let status = std::fs::read_to_string(entry.path().join("status"));
            status.is_ok_and(|status| status.lines().any(is_of))
        });
        for child in children {
            // One that has ended meanwhile needs none.
            let mut kill = Command::new("kill");
            let kill = kill.arg(signal).arg(child.file_name());
            kill.stderr(Stdio::null()).status().unwrap();
        }
        self.signal_alone(signal);
    }

    /// Sends a signal to the server alone.
    pub(crate) fn signal_alone(&self, signal: &str) {
        let own = self.child.as_ref().unwrap().id().to_string();
        let sent = Command::new("kill").args([signal, &own]).status();
        assert!(sent.unwrap().success());
    }

    /// Makes an empty database.
    pub(crate) fn make_database(&self, name: &str) {
        self.run_sql(&format!("CREATE DATABASE {name}"));
    }

    /// Runs SQL as the administrator.
    pub(crate) fn run_sql(&self, text: &str) {
        let ran = command("psql")
            .args([
                "--quiet",
                "--username=agents",
                "--dbname=postgres",
                "--command",
                text,
            ])
            .arg("--host")
            .arg(self.folder.path())
            .status();
        assert!(ran.unwrap().success());
    }

    /// The address of the server, without a database.
    pub(crate) fn base(&self) -> String {
        let folder = self.folder.path().display();
        format!("host={folder} user=agents")
    }

    /// The address where it listens with TLS.
    pub(crate) fn address_with_tls(&self) -> String {
        let port = self.port.unwrap();
        format!("host=localhost hostaddr=127.0.0.1 port={port} user=agents dbname=postgres")
    }

    /// The address of a database that every server has.
    pub(crate) fn address(&self) -> String {
        format!("{} dbname=postgres", self.base())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The second panic would hide the first.
            let _ = self
                .child
                .take()
                .map(|mut child| (child.kill(), child.wait()));
        } else {
            self.kill();
        }
    }
}

#[expect(clippy::disallowed_types, reason = "a test finds a free port")]
fn free_port() -> u16 {
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    free.local_addr().unwrap().port()
}

/// The user and the group that the Debian package has made, where this process is root.
fn other_user() -> Option<(u32, u32)> {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt as _;
        own.uid() == 0
    });
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = users.lines().find(|line| line.starts_with("postgres:"))?;
    let mut parts = line.split(':').skip(2).map(|part| part.parse().unwrap());
    is_root.then(|| (parts.next().unwrap(), parts.next().unwrap()))
}

/// A program of the server, run as its user.
fn command(name: &str) -> Command {
    let mut command = Command::new(program(name));
    if let Some((user, group)) = other_user() {
        command.uid(user).gid(group);
    }
    command.current_dir("/").env("LC_ALL", "C");
    command
}

/// Where Debian's package has a program, and else the path.
fn program(name: &str) -> PathBuf {
    let installed = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let versions = installed.map(|version| version.unwrap().path().join("bin").join(name));
    let is_program = |path: &PathBuf| {
        let found = std::fs::metadata(path);
        found.is_ok_and(|file| file.permissions().mode() & 0o111 != 0)
    };
    let newest = versions.filter(is_program).max();
    newest.unwrap_or_else(|| Path::new(name).to_owned())
}
