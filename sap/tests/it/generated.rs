//! What the generators make holds, and is read back as it was made.

use arbitrary::{Arbitrary as _, Unstructured};
use proptest::prelude::*;
use sap::validate::{Options, decode_result, decode_task};
use sap::{Task, TaskResult};

proptest! {
    // spec: SAP-4.1-15, SAP-2-3
    #[test]
    fn generated_messages_are_valid_and_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        let mut source = Unstructured::new(&bytes);
        if let Ok(task) = Task::arbitrary(&mut source) {
            let (again, _) = decode_task(&task.encode(), &Options::default()).unwrap();
            prop_assert_eq!(again, task);
        }
        if let Ok(result) = TaskResult::arbitrary(&mut source) {
            let (again, _) = decode_result(&result.encode(), &Options::default()).unwrap();
            prop_assert_eq!(again, result);
        }
    }
}

#[test]
fn there_are_seeds_and_words_to_begin_with() {
    assert!(sap::arbitrary::seeds().count() > 100);
}
