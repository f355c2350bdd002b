//! Messages of the UAP hub: what is read writes back, is judged, and what is judged good is taken.

use arbitrary::{Arbitrary, Unstructured};
use prost::Message;
use uap_hub_proto::convert::{from_struct, to_struct};
use uap_hub_proto::role::hub::{Config, Hub};
use uap_hub_proto::validate::Validate;
use uap_hub_proto::wire::{
    AgentRegistration, AgentRegistrationResponse, ListenRequest, ListenResponse, Payload, TestInit,
    TestResponse, TranslationInit, TranslationResponse,
};
use ubos_common::id::IdSource;
use ubos_common::time::{Mono, Now, Timestamp};

/// The first byte chooses the message, and whether the rest is its bytes or what a generator draws from.
pub fn check(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    match choice % 9 {
        0 => registration(read(*choice, rest)),
        1 => judged::<AgentRegistrationResponse>(read(*choice, rest)),
        2 => judged::<ListenRequest>(read(*choice, rest)),
        3 => judged::<ListenResponse>(read(*choice, rest)),
        4 => judged::<TestInit>(read(*choice, rest)),
        5 => judged::<TranslationInit>(read(*choice, rest)),
        6 => judged::<TestResponse>(read(*choice, rest)),
        7 => judged::<TranslationResponse>(read(*choice, rest)),
        _ => free_form(read(*choice, rest)),
    }
}

fn read<'a, M: Message + Default + PartialEq + Arbitrary<'a>>(
    choice: u8,
    bytes: &'a [u8],
) -> Option<M> {
    let message = match choice & 128 {
        0 => M::decode(bytes).ok()?,
        _ => M::arbitrary(&mut Unstructured::new(bytes)).ok()?,
    };
    let written = message.encode_to_vec();
    let again = M::decode(written.as_slice()).expect("what is written reads back");
    // NaN is no equal of itself, but its bytes are.
    assert_eq!(again.encode_to_vec(), written);
    Some(message)
}

fn judged<M: Validate>(message: Option<M>) {
    let Some(message) = message else { return };
    let report = message.validate();
    assert!(
        report
            .iter()
            .all(|finding| finding.pointer.is_empty() || finding.pointer.starts_with('/'))
    );
}

fn registration(message: Option<AgentRegistration>) {
    let Some(message) = message else { return };
    let is_good = message.validate().is_valid();
    let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    let taken = Hub::new(Config::default(), IdSource::seeded(1))
        .expect("the default configuration")
        .register(now, message)
        .is_ok();
    assert!(taken || !is_good, "a hub takes what is good");
}

fn free_form(payload: Option<Payload>) {
    let Some(metadata) = payload.and_then(|payload| payload.metadata) else {
        return;
    };
    if let Ok(object) = from_struct(&metadata) {
        let again = to_struct(&object).expect("it fitted before");
        assert_eq!(from_struct(&again), Ok(object));
    }
}
