//! A simulated disk that does what real ones do at the worst moment.
//!
//! Deterministic: the same calls and seeds give the same disk. It loses unsynced bytes and names at a power
//! cut, or keeps any subset of their sectors; it fills up; a write or a sync fails; after a failed sync the
//! bytes are forgotten although a second sync succeeds.

mod inode;

use self::inode::{Change, Dice, Inode};
use super::file::{DirLock, LogDir, LogFile};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A disk in memory with one folder; clones share it.
///
/// ```
/// use std::sync::Arc;
/// use ubos_common::log::{Config, Log, LogId, SimDisk};
///
/// let disk = SimDisk::new();
/// let config = Config::default().with_log_id(LogId::from_bytes([1; 16]));
/// let log = Log::open_in(disk.dir(), config.clone())?;
/// log.append(b"acknowledged")?;
/// disk.cut_power_after(0);
/// assert!(log.append(b"lost").is_err());
/// disk.restart(7);
/// assert_eq!(Log::open_in(disk.dir(), config)?.head().next_sequence, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct SimDisk(Arc<Mutex<World>>);

/// What a [`SimDisk`] lets fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SimFault {
    /// The next write that is due fails after half its bytes.
    Write,
    /// The next write that is due fails after this many of its bytes.
    ShortWrite(usize),
    /// The next sync that is due fails, and what it should have made durable is forgotten.
    Sync,
}

impl SimDisk {
    /// An empty disk without bound.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The folder, as it is used until the next restart.
    #[must_use]
    pub fn dir(&self) -> Arc<dyn LogDir> {
        let life = self.world().life;
        Arc::new(SimDir {
            disk: self.clone(),
            life,
        })
    }

    /// Bounds all files together to `bytes`; more is answered with `StorageFull`.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.world().capacity = bytes;
    }

    /// Number of changing operations (create, write, length, sync, rename, remove) so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.world().operations
    }

    /// Lets `operations` more changing operations succeed; the one after that is under way when the power goes,
    /// and all that follow fail until [`restart`](Self::restart).
    pub fn cut_power_after(&self, operations: u64) {
        let mut world = self.world();
        world.cut_at = Some(world.operations + operations + 1);
    }

    /// Lets the first write or sync after `operations` more changing operations fail, once.
    pub fn fail_after(&self, operations: u64, fault: SimFault) {
        let mut world = self.world();
        world.fail = Some((world.operations + operations, fault));
    }

    /// Cuts the power if it is still there and starts again; `seed` decides what of the unsynced survives.
    pub fn restart(&self, seed: u64) {
        let mut world = self.world();
        let mut dice = Dice(seed);
        world.settle_names(&mut dice);
        for file in world.files.values_mut() {
            file.settle(&mut dice);
        }
        let kept: Vec<u64> = world.names.values().copied().collect();
        world.files.retain(|number, _| kept.contains(number));
        world.life += 1;
        world.locked = false;
        world.cut_at = None;
        world.fail = None;
        world.dead = false;
    }

    /// The bytes of a file as a reader sees them now.
    #[must_use]
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let world = self.world();
        Some(world.files.get(world.names.get(name)?)?.current.clone())
    }

    /// Puts a file there, durably, as if it had always been so: for damage and for foreign files.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        let mut world = self.world();
        let number = world.next_number();
        world.names.insert(name.to_owned(), number);
        world.durable_names.insert(name.to_owned(), number);
        world.files.insert(number, Inode::durable(bytes));
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct World {
    files: BTreeMap<u64, Inode>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    pending_names: Vec<BTreeMap<String, u64>>,
    numbers: u64,
    capacity: Option<u64>,
    operations: u64,
    cut_at: Option<u64>,
    fail: Option<(u64, SimFault)>,
    dead: bool,
    locked: bool,
    life: u64,
}

impl World {
    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn check(&self, life: u64) -> io::Result<()> {
        if self.dead || life != self.life {
            return Err(io::Error::other("simulated power cut"));
        }
        Ok(())
    }

    /// Counts a changing operation; `true` when the power goes while it is under way.
    fn tick(&mut self, life: u64) -> io::Result<bool> {
        self.check(life)?;
        self.operations += 1;
        self.dead = self.cut_at == Some(self.operations);
        Ok(self.dead)
    }

    fn takes_fault(&mut self, is_kind: impl Fn(SimFault) -> bool) -> Option<SimFault> {
        let due = |(after, fault): &(u64, SimFault)| self.operations > *after && is_kind(*fault);
        let fault = self.fail.filter(due)?.1;
        self.fail = None;
        Some(fault)
    }

    fn change_names(
        &mut self,
        life: u64,
        change: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        self.tick(life)?;
        change(self)?;
        self.pending_names.push(self.names.clone());
        self.check(life)
    }

    fn settle_names(&mut self, dice: &mut Dice) {
        // A journal keeps a prefix of what was done to the names.
        let kept = dice.below(self.pending_names.len() as u64 + 1);
        if let Some(names) = usize::try_from(kept)
            .ok()
            .and_then(|kept| self.pending_names.get(kept.checked_sub(1)?))
        {
            self.durable_names.clone_from(names);
        }
        self.pending_names.clear();
        self.names.clone_from(&self.durable_names);
    }

    fn free(&self) -> u64 {
        let used: u64 = self
            .names
            .values()
            .filter_map(|number| self.files.get(number))
            .map(|file| file.taken)
            .sum();
        self.capacity
            .map_or(u64::MAX, |capacity| capacity.saturating_sub(used))
    }
}

#[derive(Debug)]
struct SimDir {
    disk: SimDisk,
    life: u64,
}

impl SimDir {
    fn file(&self, number: u64) -> Arc<dyn LogFile> {
        Arc::new(SimFile {
            disk: self.disk.clone(),
            life: self.life,
            number,
        })
    }
}

impl LogDir for SimDir {
    fn list(&self) -> io::Result<Vec<String>> {
        let world = self.disk.world();
        world.check(self.life)?;
        Ok(world.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let mut world = self.disk.world();
        let number = world.next_number();
        world.change_names(self.life, |world| {
            world.names.insert(name.to_owned(), number);
            world.files.insert(number, Inode::default());
            Ok(())
        })?;
        Ok(self.file(number))
    }

    fn open(&self, name: &str, _write: bool) -> io::Result<Arc<dyn LogFile>> {
        let world = self.disk.world();
        world.check(self.life)?;
        let number = world.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.file(*number))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.world().change_names(self.life, |world| {
            let number = world.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
            world.names.insert(to.to_owned(), number);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.world().change_names(self.life, |world| {
            world.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = self.disk.world();
        if world.tick(self.life)? {
            return world.check(self.life);
        }
        if world.takes_fault(|fault| fault == SimFault::Sync).is_some() {
            return Err(failure());
        }
        world.pending_names.clear();
        world.durable_names = world.names.clone();
        Ok(())
    }

    fn lock(&self) -> io::Result<Option<DirLock>> {
        let mut world = self.disk.world();
        world.check(self.life)?;
        if std::mem::replace(&mut world.locked, true) {
            return Ok(None);
        }
        Ok(Some(DirLock::new(SimLock(self.disk.clone(), self.life))))
    }

    fn identity(&self) -> io::Result<Option<String>> {
        Ok(Some(format!("{:p}", Arc::as_ptr(&self.disk.0))))
    }
}

struct SimLock(SimDisk, u64);

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut world = self.0.world();
        if world.life == self.1 {
            world.locked = false;
        }
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    life: u64,
    number: u64,
}

impl SimFile {
    fn with<T>(&self, act: impl FnOnce(&mut World, &mut Inode) -> io::Result<T>) -> io::Result<T> {
        let mut world = self.disk.world();
        let mut file = world
            .files
            .remove(&self.number)
            .ok_or(io::ErrorKind::NotFound)?;
        let answer = act(&mut world, &mut file);
        world.files.insert(self.number, file);
        answer
    }

    /// Fails when `file` cannot grow to `end` bytes; its own place counts as free.
    fn room(world: &World, file: &Inode, end: u64) -> io::Result<()> {
        if end > file.taken && end > world.free() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl LogFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|world, file| {
            world.check(self.life)?;
            let rest = file.current.get(place(offset)?..).unwrap_or_default();
            let count = rest.len().min(buffer.len());
            if let (Some(to), Some(from)) = (buffer.get_mut(..count), rest.get(..count)) {
                to.copy_from_slice(from);
            }
            Ok(count)
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.with(|world, file| {
            world.tick(self.life)?;
            let room = world.free().max(file.taken).saturating_sub(offset);
            let fits = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            let fault = world.takes_fault(|fault| fault != SimFault::Sync);
            let reached = match fault {
                Some(SimFault::ShortWrite(bytes)) => fits.min(bytes),
                Some(_) => fits / 2,
                None => fits,
            };
            file.change(Change::Write(
                place(offset)?,
                bytes.get(..reached).unwrap_or_default().to_vec(),
            ));
            if fits < bytes.len() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            if fault.is_some() {
                return Err(failure());
            }
            world.check(self.life)
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|world, file| {
            if world.tick(self.life)? {
                return world.check(self.life);
            }
            if world.takes_fault(|fault| fault == SimFault::Sync).is_some() {
                file.forget();
                return Err(failure());
            }
            file.sync();
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|world, file| world.check(self.life).map(|()| file.current.len() as u64))
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.with(|world, file| {
            world.tick(self.life)?;
            file.change(Change::Length(place(bytes)?));
            world.check(self.life)
        })
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.with(|world, file| {
            world.tick(self.life)?;
            Self::room(world, file, bytes)?;
            if bytes > file.current.len() as u64 {
                file.change(Change::Length(place(bytes)?));
            }
            file.taken = file.taken.max(bytes);
            world.check(self.life)
        })
    }
}

fn place(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(io::Error::other)
}

fn failure() -> io::Error {
    io::Error::other("simulated input/output error")
}
