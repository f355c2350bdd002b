//! The places of connections: so many on the port, and so many of one address.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, atomic::AtomicUsize},
};

use super::budget::Held;
use crate::{role::hub::network, transport::lock};

/// The places of a port.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    most_of_address: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of: HashMap<IpAddr, OfAddress>,
}

/// What an address has.
#[derive(Debug, Default)]
struct OfAddress {
    places: usize,
    bytes: Bytes,
}

/// The bytes beyond the shares of unfinished messages, of control calls and of sessions, and of messages that are not read.
type Bytes = [Arc<AtomicUsize>; 3];

impl Places {
    pub(super) fn new(most: usize, most_of_address: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            most_of_address,
            taken: Mutex::default(),
        })
    }

    /// A place for a connection from an address, of which an IPv6 one stands for its network; `None` if there is none left.
    pub(super) fn take(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Place> {
        let address = address.map(network);
        let mut taken = lock(&self.taken);
        let own = address.map(|address| taken.of.get(&address).map_or(0, |own| own.places));
        if taken.all >= self.most || own.is_some_and(|own| own >= self.most_of_address) {
            return None;
        }
        taken.all += 1;
        let mut bytes = Bytes::default();
        if let Some(address) = address {
            let own = taken.of.entry(address).or_default();
            own.places += 1;
            bytes.clone_from(&own.bytes);
        }
        let places = self.clone();
        Some(Place {
            places,
            address,
            bytes,
        })
    }
}

/// The place of one connection, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    address: Option<IpAddr>,
    bytes: Bytes,
}

impl Place {
    /// The bytes of a connection that takes this place.
    pub(super) fn held(&self) -> [Held; 3] {
        self.bytes.clone().map(Held::of)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.places.taken);
        taken.all -= 1;
        let Some(address) = self.address else { return };
        if let Some(own) = taken.of.get_mut(&address) {
            own.places -= 1;
            if own.places == 0 {
                taken.of.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: HUB-4-6
    #[test]
    fn an_address_has_fewer_places_than_the_port() {
        let places = Places::new(3, 2);
        let take = |address: &str| places.take(address.parse().ok());
        let one = take("10.0.0.1").unwrap();
        let two = take("10.0.0.1").unwrap();
        assert!(take("10.0.0.1").is_none());
        assert!(take("::ffff:10.0.0.1").is_none(), "the same address");
        let other = take("2001:db8::1").unwrap();
        let share = |other: &Place| Arc::ptr_eq(&one.bytes[0], &other.bytes[0]);
        assert!(share(&two) && !share(&other), "the bytes of the address");
        assert!(take("10.0.0.2").is_none(), "the port is full");
        drop(other);
        let others = take("2001:db8::1").unwrap();
        drop(one);
        assert!(take("10.0.0.1").is_some());
        assert_eq!(lock(&places.taken).of.len(), 2);
        // An address that is gone is not remembered.
        drop((two, others));
        assert!(lock(&places.taken).of.is_empty());
    }
}
