//! Budgets of bytes: what a connection, an address and the whole port may have the hub keep.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// What a connection may keep at most of its own, even when the others fill the port.
const MAX_SHARE: usize = 64 << 10;

/// The bytes of one kind that the whole port keeps, and their bounds. Each connection that there
/// may be has a small share of its own, so that small messages always pass; what a connection keeps beyond it is taken of what
/// all have together.
#[derive(Debug)]
pub(super) struct Pool {
    /// Bytes beyond the shares.
    used: AtomicUsize,
    most: usize,
    share: usize,
    most_of_connection: usize,
    /// Of the bytes beyond the shares, those of the connections of one address.
    most_of_address: usize,
}

impl Pool {
    /// A pool for messages of at most `bytes`: `a_connection` of them on a connection, `in_all` on the port with so many
    /// connections. Half of all that goes into the shares, and an address has half of the rest at most, but no less than one
    /// connection may keep.
    pub(super) fn new(
        bytes: usize,
        a_connection: usize,
        in_all: usize,
        connections: usize,
    ) -> Arc<Self> {
        let all = bytes.saturating_mul(in_all);
        let share = (all / 2 / connections.max(1)).min(MAX_SHARE);
        let most = all - share.saturating_mul(connections);
        let most_of_connection = bytes.saturating_mul(a_connection);
        Arc::new(Self {
            used: AtomicUsize::new(0),
            most,
            share,
            most_of_connection,
            most_of_address: most_of_connection.max(most / 2),
        })
    }

    /// What is kept beyond the shares.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The share of a connection, and what all have beyond the shares.
    #[cfg(test)]
    pub(super) const fn bounds(&self) -> (usize, usize) {
        (self.share, self.most)
    }

    /// How much of what a connection keeps is beyond its share.
    const fn beyond(&self, kept: usize) -> usize {
        kept.saturating_sub(self.share)
    }
}

/// The bytes of one kind that are kept of a connection, and those beyond the shares on all connections
/// of its address.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    connection: Arc<Level>,
    address: Arc<AtomicUsize>,
}

impl Held {
    /// Those of a new connection from an address that has so many.
    pub(super) fn of(address: Arc<AtomicUsize>) -> Self {
        Self {
            connection: Arc::default(),
            address,
        }
    }

    /// What is kept of the connection.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.connection.now.load(Ordering::Relaxed)
    }

    /// The least that was kept of the connection at any time since this was asked last.
    pub(super) fn least(&self) -> usize {
        let now = self.connection.now.load(Ordering::Relaxed);
        self.connection.least.swap(now, Ordering::Relaxed).min(now)
    }
}

#[derive(Debug, Default)]
struct Level {
    now: AtomicUsize,
    least: AtomicUsize,
}

/// A bound is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// The bytes of one owner, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Account {
    pool: Arc<Pool>,
    of: Held,
    held: usize,
}

impl Account {
    /// One that has nothing yet, on a connection.
    pub(super) const fn new(pool: Arc<Pool>, of: Held) -> Self {
        Self { pool, of, held: 0 }
    }

    /// Adds bytes; beyond a bound they count all the same until they are given back, and whoever adds them has to give up.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), Full> {
        self.held += bytes;
        let pool = &self.pool;
        let before = self.of.connection.now.fetch_add(bytes, Ordering::Relaxed);
        let own = before + bytes;
        let beyond = pool.beyond(own) - pool.beyond(before);
        let of_address = self.of.address.fetch_add(beyond, Ordering::Relaxed) + beyond;
        let all = pool.used.fetch_add(beyond, Ordering::Relaxed) + beyond;
        let is_full = of_address > pool.most_of_address || all > pool.most;
        if own > pool.most_of_connection || (beyond > 0 && is_full) {
            return Err(Full);
        }
        Ok(())
    }

    pub(super) fn give_back(&mut self) {
        let held = std::mem::take(&mut self.held);
        if held == 0 {
            return;
        }
        let connection = &self.of.connection;
        let before = connection.now.fetch_sub(held, Ordering::Relaxed);
        (connection.least).fetch_min(before - held, Ordering::Relaxed);
        let beyond = self.pool.beyond(before) - self.pool.beyond(before - held);
        self.of.address.fetch_sub(beyond, Ordering::Relaxed);
        self.pool.used.fetch_sub(beyond, Ordering::Relaxed);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(pool: &Arc<Pool>) -> Account {
        account_of(pool, &Arc::default())
    }

    /// The account of a connection from an address.
    fn account_of(pool: &Arc<Pool>, address: &Arc<AtomicUsize>) -> Account {
        Account::new(pool.clone(), Held::of(address.clone()))
    }

    // spec: HUB-4-6
    #[test]
    fn what_reaches_a_bound_is_not_beyond_it() {
        let is_at_bound = |mut account: Account, bytes| {
            assert!(account.add(bytes).is_ok());
            assert!(account.add(1).is_err());
        };
        is_at_bound(account(&Pool::new(1000, 2, 8, 1)), 2000);
        is_at_bound(account(&Pool::new(1000, 4, 2, 1)), 2000);
        let pool = Pool::new(1000, 4, 2, 4);
        let mut first = account(&pool);
        assert!(first.add(1250).is_ok());
        is_at_bound(account(&pool), 250);
    }

    // spec: HUB-4-6
    #[test]
    fn an_address_does_not_keep_what_all_may() {
        let (pool, address) = (Pool::new(1000, 4, 16, 16), Arc::default());
        assert_eq!((pool.share, pool.most), (500, 8000));
        let mut own: Vec<_> = (0..8).map(|_| account_of(&pool, &address)).collect();
        assert!(own.iter_mut().all(|one| one.add(1000).is_ok()));
        assert!(own[0].add(1).is_err(), "half of what all have");
        assert!(account_of(&pool, &address).add(500).is_ok(), "a share");
        assert!(account(&pool).add(4000).is_ok(), "others have theirs");
        drop(own);
        assert_eq!(address.load(Ordering::Relaxed), 0);
        assert_eq!(pool.used.load(Ordering::Relaxed), 0);
    }

    // spec: HUB-4-6
    #[test]
    fn all_connections_together_keep_no_more_than_is_said() {
        const CONNECTIONS: usize = 16_384;
        let pool = Pool::new(1 << 20, 4, 64, CONNECTIONS);
        let mut accounts: Vec<_> = (0..CONNECTIONS).map(|_| account(&pool)).collect();
        assert_eq!(pool.share, 2 << 10);
        assert!(accounts.iter_mut().all(|one| one.add(2 << 10).is_ok()));
        let mut more = 0;
        while accounts[more % CONNECTIONS].add(1 << 10).is_ok() {
            more += 1;
        }
        assert_eq!(more, 32 << 10, "the other half");
    }
}
