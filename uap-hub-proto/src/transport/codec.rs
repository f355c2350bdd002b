//! Decoding with a bound on parts: a message of many empty fields takes forty times its bytes when it is decoded.

use std::marker::PhantomData;

use prost::{Message, decode_length_delimiter};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder},
};
use tonic_prost::ProstCodec;

use crate::wire::{
    AgentRegistration, AgentRegistrationResponse, ListenRequest, ListenResponse, TestInit,
    TestResponse, TranslationInit, TranslationResponse,
};

/// Fields of a message and of all messages in it. Each takes some 100 bytes at most beside its own.
const MAX_FIELDS: usize = 256 << 10;
/// Fields of a job or an end in a queue beside those of its payloads or its result.
#[cfg(feature = "nats")]
const RECORD_FIELDS: usize = 64;
/// How deep messages stand in each other; the decoder refuses what is deeper.
const MAX_DEPTH: usize = 100;

/// Where messages with lists stand in a message: numbers of fields, and what is in them.
#[derive(Debug)]
pub(crate) struct Layout(&'static [(usize, &'static Self)]);

/// A message that comes over the wire.
pub(crate) trait Inbound: Message + Default + 'static {
    /// Its layout.
    const LAYOUT: &'static Layout;
}

macro_rules! inbound {
    ($($message:ident: [$(($number:literal, $of:ident)),*];)*) => {$(
        impl Inbound for $message {
            const LAYOUT: &'static Layout = &Layout(&[$(($number, &$of)),*]);
        }
    )*};
}

inbound! {
    AgentRegistration: [(2, CAPABILITY)];
    AgentRegistrationResponse: [];
    ListenRequest: [];
    ListenResponse: [];
    TestInit: [(2, PAYLOAD)];
    TestResponse: [(3, LISTS), (4, TEST_RESULT)];
    TranslationInit: [(2, PAYLOAD)];
    TranslationResponse: [(3, LISTS), (4, TRANSLATION_RESULT)];
}

/// A message with lists of messages that have none: telemetry, a requirement.
static LISTS: Layout = Layout(&[]);
static CAPABILITY: Layout = Layout(&[(1, &TEST_CAPABILITY), (2, &TRANSLATION_CAPABILITY)]);
static TEST_CAPABILITY: Layout = Layout(&[(2, &LISTS)]);
static TRANSLATION_CAPABILITY: Layout = Layout(&[(2, &LISTS), (3, &LISTS)]);
static TEST_RESULT: Layout = Layout(&[(2, &STEP), (3, &SUMMARY)]);
static TRANSLATION_RESULT: Layout = Layout(&[(2, &PAYLOAD), (3, &SUMMARY)]);
static STEP: Layout = Layout(&[(3, &SUMMARY), (4, &STEP)]);
static SUMMARY: Layout = Layout(&[(3, &STRUCT)]);
static PAYLOAD: Layout = Layout(&[(3, &STRUCT)]);
/// A job of a queue, or its end.
#[cfg(feature = "nats")]
static RECORD: Layout = Layout(&[(2, &STORED_JOB), (3, &STORED_END)]);
#[cfg(feature = "nats")]
static STORED_JOB: Layout = Layout(&[(3, &PAYLOAD)]);
#[cfg(feature = "nats")]
static STORED_END: Layout = Layout(&[(4, &TEST_RESULT), (5, &TRANSLATION_RESULT)]);
static STRUCT: Layout = Layout(&[(1, &MEMBER)]);
static MEMBER: Layout = Layout(&[(2, &VALUE)]);
static VALUE: Layout = Layout(&[(5, &STRUCT), (6, &LIST)]);
static LIST: Layout = Layout(&[(1, &VALUE)]);

impl Layout {
    /// Takes the fields of a message from those that are left; `None` if there are more. What cannot be read is left to the
    /// decoder.
    fn count(&self, mut bytes: &[u8], left: usize, depth: usize) -> Option<usize> {
        let mut left = left;
        while !bytes.is_empty() {
            left = left.checked_sub(1)?;
            let Some((key, content)) = field(&mut bytes) else {
                break;
            };
            let inner = self.0.iter().find(|(number, _)| *number == key);
            if let Some((_, inner)) = inner
                && depth < MAX_DEPTH
            {
                left = inner.count(content, left, depth + 1)?;
            }
        }
        Some(left)
    }
}

/// Whether a record has few enough fields to be decoded; one whose result came over the wire has.
#[cfg(feature = "nats")]
pub(super) fn is_bounded_record(bytes: &[u8]) -> bool {
    let most = MAX_FIELDS + RECORD_FIELDS;
    RECORD.count(bytes, most, 0).is_some()
}

/// The number of the next field, and its bytes if it has a length.
fn field<'a>(bytes: &mut &'a [u8]) -> Option<(usize, &'a [u8])> {
    let key = decode_length_delimiter(&mut *bytes).ok()?;
    let length = match key & 7 {
        0 => {
            return decode_length_delimiter(&mut *bytes)
                .ok()
                .map(|_| (0, &[][..]));
        }
        1 => 8,
        2 => decode_length_delimiter(&mut *bytes).ok()?,
        5 => 4,
        // The ends of a group; what is in it counts as well.
        _ => 0,
    };
    let (content, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    let number = if key & 7 == 2 { key >> 3 } else { 0 };
    Some((number, content))
}

/// The codec of all calls.
#[derive(Debug)]
pub(crate) struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + 'static,
    U: Inbound,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(ProstCodec::<U, U>::default().decoder())
    }
}

/// Decodes what has few enough fields.
#[derive(Debug)]
pub(crate) struct BoundedDecoder<U: Inbound>(<ProstCodec<U, U> as Codec>::Decoder);

impl<U: Inbound> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    // impl: HUB-4-6
    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // The library collects a message in one piece.
        let count = U::LAYOUT.count(bytes::Buf::chunk(bytes), MAX_FIELDS, 0);
        if count.is_none() {
            let why = format!("the message has more than {MAX_FIELDS} fields");
            return Err(Status::resource_exhausted(why));
        }
        self.0.decode(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use prost_types::{
        DescriptorProto, FileDescriptorSet,
        field_descriptor_proto::{Label, Type},
    };

    use super::*;
    use crate::wire::{Attachment, Payload, StepReport, TestResult, test_response::Event};

    fn fields<M: Inbound>(message: &M) -> Option<usize> {
        let left = M::LAYOUT.count(&message.encode_to_vec(), MAX_FIELDS, 0)?;
        Some(MAX_FIELDS - left)
    }

    // spec: HUB-4-6, HUB-6-2
    #[cfg(feature = "nats")]
    #[test]
    fn records_of_a_queue_have_so_many_fields() {
        use crate::{
            role::hub::{Job, Outcome, Record, Verdict},
            store::encode,
        };

        let id = ubos_common::id::IdSource::seeded(1).next_id();
        let job = |parts| Record::Accepted(Job::test("t", vec![Payload::default(); parts]));
        let end = |parts| {
            let mut outcome = Outcome::new(Verdict::Completed, "done");
            let attachments = vec![Attachment::default(); parts];
            let result = TestResult {
                attachments,
                ..TestResult::completed("")
            };
            outcome.result = Some(result.into());
            Record::Ended(outcome)
        };
        for record in [&job as &dyn Fn(usize) -> Record, &end] {
            let is_taken = |parts| is_bounded_record(&encode(id, &record(parts)));
            assert!(is_taken(MAX_FIELDS));
            assert!(!is_taken(MAX_FIELDS + RECORD_FIELDS));
        }
    }

    fn response(result: TestResult) -> TestResponse {
        TestResponse {
            event: Some(Event::Result(result)),
            ..TestResponse::default()
        }
    }

    fn attached(attachments: usize) -> TestResponse {
        response(TestResult {
            attachments: vec![Attachment::default(); attachments],
            ..TestResult::default()
        })
    }

    // spec: HUB-4-6
    #[test]
    fn fields_are_counted_up_to_the_bound() {
        assert_eq!(fields(&attached(0)), Some(1));
        assert_eq!(fields(&attached(7)), Some(8));
        assert_eq!(fields(&attached(MAX_FIELDS - 1)), Some(MAX_FIELDS));
        assert_eq!(fields(&attached(MAX_FIELDS)), None);
        let mut step = StepReport::default();
        for _ in 0..20 {
            step = StepReport {
                steps: vec![step, StepReport::default()],
                ..StepReport::default()
            };
        }
        let steps = TestResult {
            reports: vec![step],
            ..TestResult::default()
        };
        assert_eq!(fields(&response(steps)), Some(42));
    }

    // spec: HUB-4-6
    #[test]
    fn fields_of_every_form_are_passed_over() {
        // Numbers of a field that nobody knows, and its form: eight bytes, four bytes, a varint, a length.
        let unknown = [
            &[0xfd, 0x7f, 1, 2, 3, 4][..],
            &[0xf9, 0x7f, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0xf8, 0x7f, 0x80, 1],
            &[0xfa, 0x7f, 2, 0xff, 0xff],
        ];
        for form in unknown {
            let mut bytes = form.to_vec();
            bytes.extend(attached(7).encode_to_vec());
            let left = TestResponse::LAYOUT.count(&bytes, MAX_FIELDS, 0);
            assert_eq!(left, Some(MAX_FIELDS - 9), "{form:?}");
        }
    }

    // spec: HUB-4-6
    #[test]
    fn bytes_of_a_file_are_no_fields() {
        let file = Payload::file("p", "", "", [0x12, 0].repeat(MAX_FIELDS));
        let init = TestInit {
            payloads: vec![file],
            ..TestInit::default()
        };
        assert_eq!(fields(&init), Some(3));
    }

    #[test]
    fn whatever_comes_is_counted_without_a_panic() {
        let mut ids = ubos_common::id::IdSource::seeded(0);
        for length in 0..2_000_usize {
            let random = std::iter::repeat_with(|| ids.bits().to_le_bytes()[0] & 0x2f);
            let bytes: Vec<u8> = random.take(length % 64).collect();
            let left = TestResponse::LAYOUT.count(&bytes, 64, 0);
            assert!(left.is_some(), "a field has a byte at least");
        }
        let deep = (0..MAX_DEPTH * 2).fold(Vec::new(), |inner: Vec<u8>, _| {
            let mut bytes = vec![0x22];
            prost::encode_length_delimiter(inner.len(), &mut bytes).unwrap();
            [bytes, inner].concat()
        });
        assert_eq!(STEP.count(&deep, 1_000, 0), Some(999 - MAX_DEPTH));
    }

    /// The messages of a set of files, by their full names.
    fn messages() -> BTreeMap<String, DescriptorProto> {
        let bytes = &include_bytes!("../generated/uap.v1.bin")[..];
        let files = FileDescriptorSet::decode(bytes).unwrap().file;
        let mut all = BTreeMap::new();
        for file in files {
            for message in file.message_type {
                let name = format!(".{}.{}", file.package.as_deref().unwrap(), message.name());
                for nested in &message.nested_type {
                    all.insert(format!("{name}.{}", nested.name()), nested.clone());
                }
                all.insert(name, message);
            }
        }
        all
    }

    /// The names of the messages that have lists, or messages with lists.
    fn with_lists(all: &BTreeMap<String, DescriptorProto>) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        loop {
            let before = found.len();
            for (name, message) in all {
                let mut fields = message.field.iter();
                if fields.any(|field| {
                    field.label() == Label::Repeated || found.contains(field.type_name())
                }) {
                    found.insert(name.as_str());
                }
            }
            if found.len() == before {
                return found;
            }
        }
    }

    // spec: HUB-4-6
    #[test]
    fn layouts_are_those_of_the_files() {
        let all = messages();
        let lists = with_lists(&all);
        let mut open: Vec<(String, &Layout)> = Vec::new();
        macro_rules! begin {
            ($($message:ident)*) => {
                $(open.push((format!(".uap.v1.{}", stringify!($message)), $message::LAYOUT));)*
            };
        }
        begin!(AgentRegistration AgentRegistrationResponse ListenRequest ListenResponse TestInit
            TestResponse TranslationInit TranslationResponse);
        let mut seen = BTreeSet::new();
        while let Some((name, layout)) = open.pop() {
            let message = &all[&name];
            let wanted: Vec<_> = (message.field.iter())
                .filter(|field| field.r#type() == Type::Message)
                .filter(|field| lists.contains(field.type_name()))
                .map(|field| (usize::try_from(field.number()).unwrap(), field.type_name()))
                .collect();
            let numbers: Vec<_> = layout.0.iter().map(|(number, _)| *number).collect();
            assert_eq!(
                numbers,
                wanted.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
                "{name}"
            );
            if seen.insert(name) {
                let inner = wanted.iter().zip(layout.0);
                open.extend(inner.map(|((_, name), (_, inner))| ((*name).to_owned(), *inner)));
            }
        }
        assert!(seen.contains(".google.protobuf.Value"));
    }
}
