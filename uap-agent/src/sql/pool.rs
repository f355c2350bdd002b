//! Connections, each with a thread.

use core::hash::{Hash as _, Hasher as _};
use core::time::Duration;
use std::hash::DefaultHasher;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use ubos_common::os::Clock;
use ubos_common::time::Mono;

use super::error::OpenError;
use super::link::{Boundary, DbFault, Link, Param, Row};
use super::schema::{ASK_VERSION, SET_VERSION, VERSION};
use crate::work_thread::{ThreadFault, Unawaited, WorkThread};

/// How long a transaction is tried again while the server is away or silent, or chooses others: from when it was asked for,
/// or from when the server last did something where that is later. So a queue does not wait once for each of its jobs.
const WAIT: Duration = Duration::from_secs(30);

/// The wait before the second attempt, which doubles up to a second.
const FIRST_WAIT: Duration = Duration::from_millis(10);

/// How long a drop waits for what was asked for: an executor's thread may stand still for it.
const ENDING: Duration = Duration::from_secs(10);

/// The connections to a database. All work under one name is done by one thread, in the order of the calls.
pub(crate) struct Pool {
    threads: Vec<WorkThread<Worker>>,
    time: Arc<dyn Time>,
    ending: Duration,
}

/// The clock of a pool, and its pauses.
pub(super) trait Time: Send + Sync {
    fn now(&self) -> Mono;
    fn pause(&self, span: Duration);
}

impl Time for Clock {
    fn now(&self) -> Mono {
        self.mono()
    }

    fn pause(&self, span: Duration) {
        std::thread::sleep(span);
    }
}

/// Makes a connection, on the thread that uses it.
pub(super) type Open = Box<dyn FnOnce() -> Result<Box<dyn Link>, DbFault> + Send>;

impl Pool {
    pub(super) fn open(open: impl IntoIterator<Item = Open>) -> Result<Self, OpenError> {
        Self::open_with(Arc::new(Clock::start()), ENDING, open)
    }

    /// Opens connections that have the time from elsewhere. A drop waits so long for what was asked for.
    pub(super) fn open_with(
        time: Arc<dyn Time>,
        ending: Duration,
        open: impl IntoIterator<Item = Open>,
    ) -> Result<Self, OpenError> {
        let start = |open: Open| {
            let time = Arc::clone(&time);
            WorkThread::start("database", move || {
                let link = open().map_err(OpenError::of)?;
                let now = time.now();
                let mut worker = Worker {
                    link,
                    time,
                    asked: now,
                    ended: now,
                };
                worker.check_version()?;
                Ok::<_, OpenError>(worker)
            })
        };
        let threads = open.into_iter().map(start).collect::<Result<_, _>>()?;
        Ok(Self {
            threads,
            time,
            ending,
        })
    }

    /// The number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.threads.len()
    }

    /// The connection that does all work under a name.
    pub(crate) fn place_of(&self, name: &str) -> usize {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let places = self.threads.len().max(1) as u64;
        usize::try_from(hasher.finish() % places).unwrap_or(0)
    }

    /// Does something under a name.
    pub(crate) fn ask<T, E>(
        &self,
        name: &str,
        unawaited: Unawaited,
        act: impl FnOnce(&mut Worker) -> Result<T, E> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, E>>
    where
        T: Send + 'static,
        E: From<ThreadFault> + Send + 'static,
    {
        let asked = self.time.now();
        let act = move |worker: &mut Worker| {
            worker.asked = asked;
            act(worker)
        };
        match self.threads.get(self.place_of(name)) {
            Some(thread) => thread.ask_as(unawaited, act),
            None => Box::pin(core::future::ready(Err(ThreadFault::ended().into()))),
        }
    }
}

impl Drop for Pool {
    /// Waits for what was asked for, for a while: the threads do the rest by themselves, if the process lives.
    fn drop(&mut self) {
        self.threads.iter().for_each(WorkThread::close);
        let began = self.time.now();
        for thread in &mut self.threads {
            let waited = self.time.now().saturating_since(began);
            thread.end_within(self.ending.saturating_sub(waited));
        }
    }
}

/// One connection.
pub(crate) struct Worker {
    link: Box<dyn Link>,
    time: Arc<dyn Time>,
    /// When its present job was asked for.
    asked: Mono,
    /// When a transaction last ended as the server said.
    ended: Mono,
}

/// Whether a transaction may be done again whose commit got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// It finds out by itself whether it was done, or doing it twice is doing it once.
    Yes,
    /// It does not, and is an error.
    No,
}

impl Worker {
    /// Reads, at one moment.
    pub(crate) fn read<T, E: From<DbFault>>(
        &mut self,
        act: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact(Boundary::BeginRead, Again::Yes, act)
    }

    /// Writes all, or nothing. What `act` does to anything but the database must wait until this returns.
    pub(crate) fn write<T, E: From<DbFault>>(
        &mut self,
        again: Again,
        act: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact(Boundary::BeginWrite, again, act)
    }

    fn transact<T, E: From<DbFault>>(
        &mut self,
        begin: Boundary,
        again: Again,
        mut act: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let (mut wait, mut may_be_done) = (FIRST_WAIT, false);
        let began = self.asked.max(self.ended);
        loop {
            let attempt = self.attempt(begin, may_be_done, &mut act);
            let now = self.time.now();
            let left = WAIT.saturating_sub(now.saturating_since(began));
            match attempt {
                Attempt::Ended(ended) => {
                    self.ended = now;
                    return ended;
                }
                // One that has waited too long behind others is tried once: they have just found out what there is.
                Attempt::NotDone if left.is_zero() => {
                    return Err(DbFault::new("the database is not there").into());
                }
                Attempt::NotDone => {}
                Attempt::Unknown(fault) if again == Again::No || left.is_zero() => {
                    return Err(fault.into());
                }
                Attempt::Unknown(_) => may_be_done = true,
            }
            self.time.pause(wait.min(left));
            wait = (wait * 2).min(Duration::from_secs(1));
            // Where it fails, the next attempt does so, too.
            let _ = self.link.renew();
        }
    }

    fn attempt<T, E: From<DbFault>>(
        &mut self,
        begin: Boundary,
        may_be_done: bool,
        act: &mut impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Attempt<T, E> {
        match self.link.at(begin) {
            Err(fault) if fault.may_pass => return Attempt::NotDone,
            Err(fault) => return Attempt::Ended(Err(fault.into())),
            Ok(()) => {}
        }
        let link = self.link.as_mut();
        let mut transaction = Transaction {
            link,
            may_be_done,
            may_pass: false,
        };
        let acted = act(&mut transaction);
        let may_pass = transaction.may_pass;
        let end = match acted {
            Ok(_) => Boundary::Commit,
            Err(_) => Boundary::RollBack,
        };
        match (acted, self.link.at(end)) {
            (Ok(_), Err(fault)) if fault.may_pass => Attempt::Unknown(fault),
            (Ok(_), Err(fault)) => {
                // It may be open still.
                let _ = self.link.at(Boundary::RollBack);
                Attempt::Ended(Err(fault.into()))
            }
            // A transaction that cannot be rolled back has no connection any more.
            (Err(_), _) if may_pass => Attempt::NotDone,
            (acted, _) => Attempt::Ended(acted),
        }
    }

    fn check_version(&mut self) -> Result<(), OpenError> {
        let seen = self.write(Again::Yes, |transaction| {
            let seen = transaction.one(ASK_VERSION, &[], |row| row.int(0))?;
            if seen.is_some() {
                return Ok::<_, DbFault>(seen);
            }
            // Another process may do so at the same time, or have set another version.
            transaction.execute(SET_VERSION, &[Param::Int(VERSION)])?;
            transaction.one(ASK_VERSION, &[], |row| row.int(0))
        });
        match seen.map_err(OpenError::of)? {
            Some(seen) if seen != VERSION => Err(OpenError::Version {
                seen,
                wanted: VERSION,
            }),
            _ => Ok(()),
        }
    }
}

/// What became of a transaction.
enum Attempt<T, E> {
    Ended(Result<T, E>),
    /// Nothing was done, and it may be tried again.
    NotDone,
    /// The connection was lost at the commit.
    Unknown(DbFault),
}

/// An open transaction.
pub(crate) struct Transaction<'a> {
    link: &'a mut dyn Link,
    may_be_done: bool,
    may_pass: bool,
}

impl Transaction<'_> {
    /// Whether an earlier attempt may have been committed.
    pub(crate) const fn may_be_done(&self) -> bool {
        self.may_be_done
    }

    /// Runs a statement; how many rows it changed.
    pub(crate) fn execute(
        &mut self,
        text: &'static str,
        values: &[Param<'_>],
    ) -> Result<u64, DbFault> {
        let done = self.link.execute(text, values);
        done.inspect_err(|fault| self.may_pass |= fault.may_pass)
    }

    /// Gives the rows of a query one by one.
    pub(crate) fn each<E: From<DbFault>>(
        &mut self,
        text: &'static str,
        values: &[Param<'_>],
        mut each: impl FnMut(Row) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut refused = None;
        let read = self.link.query(text, values, &mut |row| {
            refused = each(row).err();
            refused.is_none()
        });
        if let Err(fault) = read {
            self.may_pass |= fault.may_pass;
            return Err(fault.into());
        }
        refused.map_or(Ok(()), Err)
    }

    /// The names that a query gives, up to a bound of their bytes and of what each takes besides.
    pub(crate) fn names(
        &mut self,
        text: &'static str,
        values: &[Param<'_>],
    ) -> Result<Vec<String>, DbFault> {
        const BOUND: usize = 64 << 20;
        const NAME: usize = 64;
        let (mut names, mut bytes) = (Vec::new(), 0_usize);
        self.each(text, values, |mut row| {
            let name = row.text(0)?;
            bytes = bytes.saturating_add(name.len()).saturating_add(NAME);
            if bytes > BOUND {
                return Err(DbFault::new("the names take more than 64 MiB"));
            }
            names.push(name);
            Ok(())
        })?;
        Ok(names)
    }

    /// The first row of a query.
    pub(crate) fn one<T>(
        &mut self,
        text: &'static str,
        values: &[Param<'_>],
        mut take: impl FnMut(&mut Row) -> Result<T, DbFault>,
    ) -> Result<Option<T>, DbFault> {
        let mut found = None;
        self.each(text, values, |mut row| {
            if found.is_none() {
                found = Some(take(&mut row)?);
            }
            Ok::<_, DbFault>(())
        })?;
        Ok(found)
    }
}
