//! What each peer has registered, so that none takes the places of the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr},
};

use crate::id::Identity;

/// Whose quota an agent counts for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Peer {
    Identity(Identity),
    Network(IpAddr),
}

impl Peer {
    /// The identity or, where there is none, the address.
    pub(super) fn of(identity: Option<&Identity>, address: Option<IpAddr>) -> Option<Self> {
        if let Some(identity) = identity {
            return Some(Self::Identity(identity.clone()));
        }
        address.map(network).map(Self::Network)
    }
}

/// Whose an address is: whoever has one IPv6 address has all of its network of 64 bits.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// The agents of each peer that has any.
#[derive(Debug, Default)]
pub(super) struct Quotas(BTreeMap<Peer, Registered>);

#[derive(Debug, Default)]
struct Registered {
    agents: usize,
    /// Bytes of their registrations.
    bytes: usize,
    /// The places of those that do not listen.
    pending: BTreeSet<u64>,
    /// Bytes of the registrations of those that do not listen.
    pending_bytes: usize,
}

impl Quotas {
    pub(super) fn agents(&self, peer: &Peer) -> usize {
        self.0.get(peer).map_or(0, |registered| registered.agents)
    }

    /// Bytes of the registrations that do not make room for others of the peer.
    pub(super) fn listening_bytes(&self, peer: &Peer) -> usize {
        let registered = self.0.get(peer);
        registered.map_or(0, |registered| registered.bytes - registered.pending_bytes)
    }

    /// The place of the agent that has not listened for longest, if there are `most` or more of them, or if all agents of the
    /// peer have more than `bytes`.
    pub(super) fn oldest_pending(&self, peer: &Peer, most: usize, bytes: usize) -> Option<u64> {
        let registered = self.0.get(peer)?;
        let oldest = registered.pending.first().copied();
        oldest.filter(|_| registered.pending.len() >= most || registered.bytes > bytes)
    }

    /// An agent with a registration of so many bytes, that does not listen yet.
    pub(super) fn add(&mut self, peer: Option<&Peer>, place: u64, bytes: usize) {
        if let Some(peer) = peer {
            let registered = self.0.entry(peer.clone()).or_default();
            registered.agents += 1;
            registered.bytes += bytes;
            registered.pending.insert(place);
            registered.pending_bytes += bytes;
        }
    }

    /// An agent that began to wait in this place does not wait any more.
    pub(super) fn listens(&mut self, peer: Option<&Peer>, place: u64, bytes: usize) {
        if let Some(registered) = peer.and_then(|peer| self.0.get_mut(peer)) {
            registered.pending.remove(&place);
            registered.pending_bytes -= bytes;
        }
    }

    /// An agent is not listening any more, and is the last that waits.
    pub(super) fn is_away(&mut self, peer: Option<&Peer>, place: u64, bytes: usize) {
        if let Some(registered) = peer.and_then(|peer| self.0.get_mut(peer)) {
            registered.pending.insert(place);
            registered.pending_bytes += bytes;
        }
    }

    /// An agent that does not wait is gone.
    pub(super) fn remove(&mut self, peer: Option<&Peer>, bytes: usize) {
        let Some(peer) = peer else { return };
        let Some(registered) = self.0.get_mut(peer) else {
            return;
        };
        registered.agents -= 1;
        registered.bytes -= bytes;
        if registered.agents == 0 {
            self.0.remove(peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_one_peer() {
        let peer = |address: &str| Peer::of(None, Some(address.parse().unwrap()));
        assert_eq!(peer("2001:db8::1"), peer("2001:db8:0:0:ffff::2"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        let named = Identity::from("n");
        let address = "10.0.0.1".parse().ok();
        assert_eq!(
            Peer::of(Some(&named), address),
            Peer::of(Some(&named), None)
        );
        assert_eq!(Peer::of(None, None), None);
    }

    #[test]
    fn nothing_is_kept_of_peers_that_left() {
        let peer = Peer::of(Some(&"p".into()), None);
        let mut quotas = Quotas::default();
        for order in 0..3 {
            quotas.add(peer.as_ref(), order, 10);
        }
        let one = peer.as_ref().unwrap();
        assert_eq!(quotas.oldest_pending(one, 3, 30), Some(0));
        quotas.listens(peer.as_ref(), 0, 10);
        assert_eq!(quotas.listening_bytes(one), 10);
        assert_eq!(quotas.oldest_pending(one, 3, 30), None);
        assert_eq!(quotas.oldest_pending(one, 2, 30), Some(1));
        assert_eq!(quotas.oldest_pending(one, 3, 29), Some(1));
        quotas.is_away(peer.as_ref(), 7, 10);
        assert_eq!(quotas.listening_bytes(one), 0);
        assert_eq!(quotas.oldest_pending(one, 3, 30), Some(1));
        (0..3).for_each(|_| quotas.remove(peer.as_ref(), 10));
        assert!(quotas.0.is_empty());
    }
}
