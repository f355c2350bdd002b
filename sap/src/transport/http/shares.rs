//! How many connections each address has: one alone must not have them all.

use core::net::IpAddr;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The connections of a server by the address at their other end. It holds as many addresses as there are connections.
#[derive(Debug)]
pub(super) struct Shares {
    max: usize,
    taken: Mutex<BTreeMap<Side, usize>>,
}

/// The other end: an address, or the network of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    V4([u8; 4]),
    /// The first half: a host has all addresses of the other half.
    V6([u8; 8]),
}

/// One connection of an address, until it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    of: Arc<Shares>,
    side: Side,
}

impl Shares {
    pub(super) fn new(max: usize) -> Arc<Self> {
        let taken = Mutex::default();
        Arc::new(Self { max, taken })
    }

    /// One more connection of an address, where it has not as many as it may.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Option<Share> {
        let side = Side::of(address);
        let mut taken = self.lock();
        let connections = taken.entry(side).or_insert(0);
        if *connections >= self.max {
            return None;
        }
        *connections += 1;
        Some(Share {
            of: Arc::clone(self),
            side,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Side, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Side {
    fn of(address: IpAddr) -> Self {
        // An address of version 4 that came by a socket of version 6 is that address.
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let [network @ .., _, _, _, _, _, _, _, _] = address.octets();
                Self::V6(network)
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.of.lock();
        if let Some(connections) = taken.get_mut(&self.side) {
            *connections -= 1;
            if *connections == 0 {
                taken.remove(&self.side);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: SAP-10-2
    #[test]
    fn an_address_has_its_share_and_its_neighbour_another() {
        for (one, same, other) in [
            ("192.0.2.7", "::ffff:192.0.2.7", "192.0.2.8"),
            ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1"),
        ] {
            let [one, same, other] = [one, same, other].map(|address| address.parse().unwrap());
            let shares = Shares::new(2);
            let (first, second) = (shares.take(one).unwrap(), shares.take(same).unwrap());
            assert!(shares.take(one).is_none() && shares.take(same).is_none());
            assert!(shares.take(other).is_some());
            drop(first);
            assert!(shares.take(same).is_some());
            drop(second);
            // Nothing is kept of one who is gone.
            assert!(shares.lock().is_empty());
        }
    }
}
