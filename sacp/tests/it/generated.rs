//! What the generators draw is valid, whatever they are given.

use arbitrary::{Arbitrary, Unstructured};
use proptest::prelude::*;
use sacp::{AnyMessage, line};

proptest! {
    #[test]
    fn drawn_messages_are_valid_and_come_back(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let message = AnyMessage::arbitrary(&mut Unstructured::new(&bytes)).unwrap();
        let (again, _) = AnyMessage::decode(&message.encode()).unwrap();
        prop_assert_eq!(&again, &message);
        let told = line::write(&message);
        prop_assert_eq!(line::read(&told).unwrap().encode(), message.encode(), "{}", told);
    }
}
