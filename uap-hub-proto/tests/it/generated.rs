//! The .proto files keep their pattern, and the committed code is what they generate.

use prost_types::{
    DescriptorProto, FieldDescriptorProto, MethodDescriptorProto,
    field_descriptor_proto::{Label, Type},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn proto_dir() -> PathBuf {
    Path::new(ROOT).join("proto")
}

/// Relative paths of all .proto files, sorted.
fn proto_files() -> Vec<String> {
    let mut files: Vec<_> = fs::read_dir(proto_dir().join("uap/v1"))
        .unwrap()
        .map(|entry| {
            format!(
                "uap/v1/{}",
                entry.unwrap().file_name().into_string().unwrap()
            )
        })
        .collect();
    files.sort();
    files
}

/// The one top-level item of a file, or why it breaks the 1-1-1 pattern.
fn single_item(name: &str, text: &str) -> Result<String, String> {
    let file = protox::file::File::from_source(name, text).map_err(|err| err.to_string())?;
    let file = file.file_descriptor_proto();
    if file.package() != "uap.v1" {
        return Err(format!("{name}: package is {:?}", file.package()));
    }
    let items: Vec<&str> = (file.message_type.iter().map(|m| m.name()))
        .chain(file.enum_type.iter().map(|e| e.name()))
        .chain(file.service.iter().map(|s| s.name()))
        .collect();
    match items.as_slice() {
        [one] if name == format!("uap/v1/{one}.proto") => Ok((*one).to_owned()),
        [one] => Err(format!("{name}: holds {one}")),
        many => Err(format!("{name}: {} top-level items", many.len())),
    }
}

fn generate() -> String {
    let fds = protox::compile(proto_files(), [proto_dir()]).unwrap();
    let out = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .bytes(".uap.v1.Attachment.data")
        .codec_path("crate::transport::BoundedCodec")
        .client_mod_attribute("uap.v1", "#[cfg(feature = \"client\")]")
        .server_mod_attribute("uap.v1", "#[cfg(feature = \"server\")]")
        .out_dir(out.path())
        .compile_fds(fds)
        .unwrap();
    fs::read_to_string(out.path().join("uap.v1.rs")).unwrap()
}

// spec: HUB-0-1
#[test]
fn every_proto_file_holds_one_item_named_like_the_file() {
    let files = proto_files();
    assert_eq!(files.len(), 31);
    for name in files {
        let text = fs::read_to_string(proto_dir().join(&name)).unwrap();
        single_item(&name, &text).unwrap();
    }
}

// spec: HUB-0-1
#[test]
fn a_file_with_two_items_is_found() {
    let head = "syntax = \"proto3\"; package uap.v1;";
    let check = |body: &str| single_item("uap/v1/A.proto", &format!("{head}{body}"));
    assert_eq!(check("message A {}"), Ok("A".to_owned()));
    assert!(check("message A {} message B {}").is_err());
    assert!(check("message A {} enum B { B_UNSPECIFIED = 0; }").is_err());
    assert!(check("message A {} service B {}").is_err());
    assert!(check("message B {}").is_err());
    assert!(
        single_item(
            "uap/v1/A.proto",
            "syntax = \"proto3\"; package uap.v2; message A {}"
        )
        .is_err()
    );
}

/// Every message with its fields, every enum with its values, every call, in one line each.
const WIRE: &str = "\
AgentHub: AgentRegistration Register AgentRegistrationResponse; stream ListenRequest Listen stream ListenResponse; \
stream TestResponse Execute stream TestInit; stream TranslationResponse Translate stream TranslationInit
AgentRegistration: string display_name 1; repeated Capability capabilities 2
AgentRegistrationResponse: string client_id 1
Attachment: string name 1; string mime_type 2; bytes data 3
Capability: format TestCapability test 1; format TranslationCapability translation 2
ListenRequest: event Empty ready 1; event SessionAcceptance session_acceptance 2
ListenResponse: event SessionProposal session_proposal 1; event SessionReady session_ready 2
Payload: string type 1; Attachment attachment 2; Struct metadata 3
PayloadRequirement: string type 1; bool is_required 2; bool is_repeatable 3; repeated string accepted_mime_types 4
SessionAcceptance: string session_id 1; bool accepted 2; string reason 3
SessionProposal: string session_id 1; details TestProposalDetails test 2; \
details TranslationProposalDetails translation 3
SessionReady: string session_id 1
Severity: SEVERITY_UNSPECIFIED 0; SEVERITY_TRACE 1; SEVERITY_DEBUG 2; SEVERITY_INFO 3; SEVERITY_WARN 4; \
SEVERITY_ERROR 5; SEVERITY_FATAL 6
StepReport: string name 1; StepStatus status 2; Summary summary 3; repeated StepReport steps 4
StepStatus: STEP_STATUS_UNSPECIFIED 0; STEP_STATUS_PASSED 1; STEP_STATUS_FAILED 2; STEP_STATUS_SKIPPED 3
Summary: Duration total_duration 1; Timestamp start_time 2; Struct metadata 3
Telemetry: string message 1; repeated Attachment attachments 2; Timestamp timestamp 3; Severity severity 4; \
string source 5
TestCapability: string type 1; repeated PayloadRequirement payloads 2
TestInit: string test_type 1; repeated Payload payloads 2
TestProposalDetails: string type 1
TestResponse: Timestamp timestamp 1; event TestStatus status 2; event Telemetry telemetry 3; event TestResult result 4
TestResult: TestStatus status 1; repeated StepReport reports 2; Summary summary 3; repeated Attachment attachments 4
TestState: TEST_STATE_UNSPECIFIED 0; TEST_STATE_ACKNOWLEDGED 1; TEST_STATE_INVALID 2; TEST_STATE_RUNNING 3; \
TEST_STATE_COMPLETED 4; TEST_STATE_FAILED 5
TestStatus: TestState state 1; string message 2
TranslationCapability: string type 1; repeated PayloadRequirement source_payloads 2; \
repeated PayloadRequirement target_payloads 3
TranslationInit: string target_format 1; repeated Payload payloads 2
TranslationProposalDetails: string type 1
TranslationResponse: Timestamp timestamp 1; event TranslationStatus status 2; event Telemetry telemetry 3; \
event TranslationResult result 4
TranslationResult: TranslationStatus status 1; repeated Payload payloads 2; Summary summary 3
TranslationState: TRANSLATION_STATE_UNSPECIFIED 0; TRANSLATION_STATE_ACKNOWLEDGED 1; TRANSLATION_STATE_INVALID 2; \
TRANSLATION_STATE_PROCESSING 3; TRANSLATION_STATE_COMPLETED 4; TRANSLATION_STATE_FAILED 5
TranslationStatus: TranslationState state 1; string message 2";

/// Extensions of this implementation begin here; deployed peers pass them over.
const EXTENSION: i32 = 1000;

/// A field as `WIRE` writes it: label or oneof, type, name, number.
fn field(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let scalar = match field.r#type() {
        Type::String => "string",
        Type::Bytes => "bytes",
        Type::Bool => "bool",
        _ => field.type_name().rsplit('.').next().unwrap(),
    };
    let label = match field.oneof_index {
        Some(at) => format!(
            "{} ",
            message.oneof_decl[usize::try_from(at).unwrap()].name()
        ),
        None if field.label() == Label::Repeated => "repeated ".to_owned(),
        None => String::new(),
    };
    format!("{label}{scalar} {} {}", field.name(), field.number())
}

fn call(method: &MethodDescriptorProto) -> String {
    let side = |streams, name: &str| {
        format!(
            "{}{}",
            if streams { "stream " } else { "" },
            &name[".uap.v1.".len()..]
        )
    };
    let request = side(method.client_streaming(), method.input_type());
    format!(
        "{request} {} {}",
        method.name(),
        side(method.server_streaming(), method.output_type())
    )
}

// spec: HUB-0-1, HUB-1-1
#[test]
fn names_and_numbers_are_those_of_the_deployed_peers() {
    let fds = protox::compile(proto_files(), [proto_dir()]).unwrap();
    let mut lines = Vec::new();
    for file in fds.file.iter().filter(|file| file.package() == "uap.v1") {
        let mut line =
            |name: &str, parts: Vec<String>| lines.push(format!("{name}: {}", parts.join("; ")));
        for message in &file.message_type {
            line(
                message.name(),
                message
                    .field
                    .iter()
                    .filter(|one| one.number() < EXTENSION)
                    .map(|one| field(message, one))
                    .collect(),
            );
        }
        for one in &file.enum_type {
            line(
                one.name(),
                one.value
                    .iter()
                    .map(|value| format!("{} {}", value.name(), value.number()))
                    .collect(),
            );
        }
        for service in &file.service {
            line(service.name(), service.method.iter().map(call).collect());
        }
    }
    lines.sort();
    assert_eq!(lines, WIRE.lines().collect::<Vec<_>>());
}

/// The files as a compiler reads them, for the reflection service: without comments.
fn descriptors() -> Vec<u8> {
    let mut compiler = protox::Compiler::new([proto_dir()]).unwrap();
    compiler
        .include_imports(true)
        .include_source_info(false)
        .open_files(proto_files())
        .unwrap()
        .encode_file_descriptor_set()
}

// spec: HUB-0-2
#[test]
fn committed_code_is_fresh() {
    for (name, fresh) in [
        ("uap.v1.rs", generate().into_bytes()),
        ("uap.v1.bin", descriptors()),
    ] {
        let path = Path::new(ROOT).join("src/generated").join(name);
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            fs::write(&path, &fresh).unwrap();
        }
        let committed = fs::read(&path).unwrap_or_default();
        assert!(
            committed == fresh,
            "{name} is stale: run the test again with UPDATE_GENERATED=1"
        );
    }
}
