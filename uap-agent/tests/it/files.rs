//! Checkpoints in files, in the standard layout.

use std::fs;
use std::sync::{Arc, Mutex};

use futures::executor::block_on;
use uap_agent::{
    AgentOptions, AgentState, CheckpointError, CheckpointMetadata, CheckpointStore,
    FileCheckpoints, agent,
};
use ubos_common::id::IdSource;
use ubos_common::time::Timestamp;
use upp::{Reply, ScriptedModel};

use crate::log_store::Steps;

fn store() -> (tempfile::TempDir, FileCheckpoints) {
    let folder = tempfile::tempdir().unwrap();
    let store = FileCheckpoints::open(folder.path()).unwrap();
    (folder, store)
}

fn checkpoint(session: &str) -> (CheckpointMetadata, AgentState) {
    let ids = &mut IdSource::seeded(4);
    let state = AgentState::initial(ids).with_step(ids, 3);
    let (id, at) = (ids.uuid(), Timestamp::EPOCH);
    (
        CheckpointMetadata::new(session.into(), id, at, 3, "agent".into()),
        state,
    )
}

// spec: UAP-12-3
#[test]
fn the_layout_is_the_standard_one_and_survives_the_process() {
    let (folder, store) = store();
    let (metadata, state) = checkpoint("a/b");
    block_on(store.save(metadata.clone(), state.clone())).unwrap();
    let place = folder.path().join("a%2Fb");
    let mut files: Vec<_> = fs::read_dir(&place)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort_unstable();
    assert_eq!(files, ["checkpoint.json", "metadata.json"]);
    let written = fs::read_to_string(place.join("checkpoint.json")).unwrap();
    // Others read it: white space is all that stands behind the JSON.
    assert_eq!(written.trim_end(), state.to_json());
    let limits = ubos_common::json::Limits::default();
    assert_eq!(
        AgentState::from_json(written.as_bytes(), &limits).unwrap(),
        state
    );
    // What others put there is left alone.
    fs::write(folder.path().join("notes.txt"), "").unwrap();
    fs::create_dir(folder.path().join("empty")).unwrap();
    fs::create_dir(folder.path().join("not ours")).unwrap();
    drop(store);
    let again = FileCheckpoints::open(folder.path()).unwrap();
    assert_eq!(block_on(again.list()).unwrap(), ["a/b"]);
    assert_eq!(block_on(again.load("a/b")).unwrap(), Some(state));
    assert_eq!(
        block_on(again.load_metadata("a/b")).unwrap(),
        Some(metadata)
    );
}

// spec: UAP-12-3
#[test]
fn a_folder_of_another_session_is_left_to_it() {
    let (folder, store) = store();
    let (metadata, state) = checkpoint("Alice");
    block_on(store.save(metadata.clone(), state)).unwrap();
    drop(store);
    // As a file system has it that does not tell upper from lower case.
    let (theirs, ours) = (folder.path().join("Alice"), folder.path().join("alice"));
    fs::rename(theirs, &ours).unwrap();
    let store = FileCheckpoints::open(folder.path()).unwrap();
    let is_refused = |error| matches!(error, CheckpointError::Session(_));
    assert!(is_refused(block_on(store.load("alice")).unwrap_err()));
    assert!(is_refused(
        block_on(store.load_metadata("alice")).unwrap_err()
    ));
    let (other, state) = checkpoint("alice");
    assert!(is_refused(block_on(store.save(other, state)).unwrap_err()));
    assert!(is_refused(block_on(store.delete("alice")).unwrap_err()));
    let kept = fs::read_to_string(ours.join("metadata.json")).unwrap();
    assert_eq!(kept.trim_end(), ubos_common::json::to_string(&metadata));
}

// spec: UAP-12-3
#[test]
fn a_state_of_another_session_is_refused_and_stays() {
    let (folder, store) = store();
    let (metadata, state) = checkpoint("ann");
    block_on(store.save(metadata, state)).unwrap();
    let (metadata, state) = checkpoint("bob");
    block_on(store.save(metadata.clone(), state.clone())).unwrap();
    drop(store);
    let theirs = fs::read(folder.path().join("ann/checkpoint.json")).unwrap();
    let file = folder.path().join("bob/checkpoint.json");
    fs::write(&file, &theirs).unwrap();
    let store = FileCheckpoints::open(folder.path()).unwrap();
    assert_eq!(block_on(store.load("bob")), Err(CheckpointError::Foreign));
    let saved = store.save(metadata.clone(), state.clone());
    assert_eq!(block_on(saved), Err(CheckpointError::Foreign));
    assert_eq!(fs::read(&file).unwrap(), theirs);
    // It can be deleted, and begun anew.
    block_on(store.delete("bob")).unwrap();
    block_on(store.save(metadata, state.clone())).unwrap();
    assert_eq!(block_on(store.load("bob")), Ok(Some(state)));
}

// spec: UAP-12-3, UAP-12-4
#[test]
fn a_run_does_not_replace_what_another_implementation_has_written_meanwhile() {
    let (folder, store) = store();
    let (elsewhere, other) = self::store();
    let mut ours = Steps::new(1);
    ours.step(5);
    ours.save(&store, "s").unwrap();
    let before = ours.state.id();
    // It knows of no lock.
    let mut theirs = Steps::new(2);
    theirs.step(9);
    theirs.save(&other, "s").unwrap();
    for file in ["checkpoint.json", "metadata.json"] {
        let [from, to] = [&elsewhere, &folder].map(|folder| folder.path().join("s").join(file));
        fs::copy(from, to).unwrap();
    }
    ours.step(5);
    let mut save_after = |id| {
        let metadata = ours.metadata("s");
        block_on(store.save_after(metadata, ours.state.clone(), Some(id)))
    };
    let refused = save_after(before).unwrap_err();
    assert!(
        matches!(refused, CheckpointError::Conflict { .. }),
        "{refused:?}"
    );
    assert_eq!(block_on(store.load("s")), Ok(Some(theirs.state.clone())));
    save_after(theirs.state.id()).unwrap();
}

// spec: UAP-12-3
#[test]
fn files_from_before_states_named_their_session_are_read() {
    let (folder, store) = store();
    let (metadata, state) = checkpoint("s");
    block_on(store.save(metadata, state.clone())).unwrap();
    let file = folder.path().join("s/checkpoint.json");
    // The JSON, and its digest alone behind it.
    let json = state.to_json();
    let digest = ubos_common::canon::Digest::of_bytes(json.as_bytes());
    let bits = digest.as_bytes().iter().flat_map(|byte| {
        (0..8).map(move |n| match byte.rotate_left(n) & 0x80 {
            0 => ' ',
            _ => '\t',
        })
    });
    let old: String = json.chars().chain(['\n']).chain(bits).collect();
    fs::write(&file, &old).unwrap();
    assert_eq!(block_on(store.load("s")), Ok(Some(state)));
    fs::write(&file, old.replacen('3', "4", 1)).unwrap();
    assert_eq!(block_on(store.load("s")), Ok(None));
}

// spec: UAP-12-3
#[test]
fn a_save_that_was_cut_off_leaves_the_last_one() {
    let (folder, store) = store();
    let (metadata, state) = checkpoint("s");
    block_on(store.save(metadata.clone(), state.clone())).unwrap();
    // What a process leaves that dies while it writes.
    let place = folder.path().join("s");
    fs::write(
        place.join("checkpoint.json.new"),
        &state.to_json().as_bytes()[..20],
    )
    .unwrap();
    assert_eq!(block_on(store.load("s")).unwrap(), Some(state.clone()));
    block_on(store.save(metadata, state.clone())).unwrap();
    assert_eq!(block_on(store.load("s")).unwrap(), Some(state));
    assert!(!place.join("checkpoint.json.new").exists());
}

// spec: UAP-12-3
#[test]
fn what_is_no_checkpoint_is_put_aside_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let store = FileCheckpoints::open(folder.path()).unwrap();
    let store = store.with_on_corrupt(move |file| heard.lock().unwrap().push(file.clone()));
    let place = folder.path().join("s");
    let (metadata, state) = checkpoint("s");
    for (n, bad) in ["{\"version\":", "{\"version\":\"9\"}"]
        .into_iter()
        .enumerate()
    {
        block_on(store.save(metadata.clone(), state.clone())).unwrap();
        fs::write(place.join("checkpoint.json"), bad).unwrap();
        assert_eq!(block_on(store.load("s")).unwrap(), None);
        let aside = place.join(format!("checkpoint.json.corrupt-{n}"));
        assert_eq!(fs::read_to_string(&aside).unwrap(), bad);
        assert_eq!(told.lock().unwrap()[n].path, aside.display().to_string());
    }
    assert!(
        told.lock().unwrap()[1]
            .why
            .contains("Unsupported UAP version")
    );
    fs::write(place.join("metadata.json"), "[]").unwrap();
    assert_eq!(block_on(store.load_metadata("s")).unwrap(), None);
    assert_eq!(block_on(store.list()).unwrap(), [""; 0]);
    block_on(store.delete("s")).unwrap();
    assert!(!place.exists());
}

// spec: UAP-12-3
#[test]
fn a_session_without_a_place_is_refused_before_anything_runs() {
    let (_folder, store) = store();
    let store: Arc<dyn CheckpointStore> = Arc::new(store);
    for (session, good) in [("", false), (".", false), ("..", false), ("../x", true)] {
        let model = Arc::new(ScriptedModel::new([Reply::text("hello")]));
        let options = AgentOptions::new(model).with_checkpoints(Arc::clone(&store));
        let made = agent(options.with_session_id(session));
        assert_eq!(made.is_ok(), good, "{session:?}");
    }
}

// spec: UAP-12-2, UAP-12-3
#[test]
fn a_run_leaves_its_state_in_files() {
    let (_folder, store) = store();
    let store = Arc::new(store);
    let model = Arc::new(ScriptedModel::new([Reply::text("hello")]));
    let options = AgentOptions::new(model).with_checkpoints(store.clone());
    let agent = agent(options.with_session_id("kept")).unwrap();
    let state = agent.initial_state();
    let result = block_on(agent.generate("hi", &state)).unwrap();
    let loaded = block_on(store.load("kept")).unwrap().unwrap();
    assert_eq!(loaded.messages(), result.state.messages());
    assert_eq!(
        block_on(store.load_metadata("kept")).unwrap().unwrap().step,
        1
    );
}

// spec: UAP-12-1, UAP-12-3
#[test]
fn a_state_that_would_not_be_read_back_takes_no_place() {
    let (_folder, store) = store();
    let (store, failures) = (Arc::new(store), Arc::new(Mutex::new(Vec::new())));
    let told = Arc::clone(&failures);
    let model = ScriptedModel::with(|_| Some(Reply::text("hello")));
    let options = AgentOptions::new(Arc::new(model))
        .with_session_id("s")
        .with_checkpoints(store.clone())
        .with_on_save_failed(move |error| told.lock().unwrap().push(error.clone()));
    let agent = agent(options).unwrap();
    let ids = &mut IdSource::seeded(9);
    let hello = upp::Message::user(upp::Stamp::new(ids, Timestamp::EPOCH), "hi");
    let once = block_on(agent.generate(hello.clone(), &agent.initial_state())).unwrap();
    // The same message once more: its id is there twice.
    let doubled = once.state.with_message(ids, hello);
    block_on(agent.generate("again", &doubled)).unwrap();
    assert_eq!(block_on(store.load("s")).unwrap(), Some(once.state));
    let failures = failures.lock().unwrap();
    assert!(
        matches!(&failures[..], [CheckpointError::Unreadable(why)] if why.starts_with("/messages/2/id"))
    );
}

// spec: UAP-12-3
#[test]
fn a_changed_bit_is_noticed_wherever_it_is() {
    let (folder, store) = store();
    let (metadata, state) = checkpoint("s");
    let state = state.with_metadata(&mut IdSource::seeded(9), "key", upp::json_text("value"));
    let place = folder.path().join("s");
    let mut tried = 0;
    for name in ["checkpoint.json", "metadata.json"] {
        block_on(store.delete("s")).unwrap();
        block_on(store.save(metadata.clone(), state.clone())).unwrap();
        let file = place.join(name);
        let sound = fs::read(&file).unwrap();
        for n in 0..sound.len() * 8 {
            let mut changed = sound.clone();
            changed[n / 8] ^= 1 << (n % 8);
            fs::write(&file, changed).unwrap();
            let loaded = block_on(store.load("s")).unwrap();
            let known = block_on(store.load_metadata("s")).unwrap();
            let is_noticed = match name {
                "checkpoint.json" => loaded.is_none(),
                _ => known.is_none() && loaded.as_ref() == Some(&state),
            };
            assert!(is_noticed, "bit {n} of {name}: {loaded:?} {known:?}");
            assert!(!file.exists(), "it is put aside");
            tried += 1;
        }
    }
    assert!(tried > 4000, "{tried}");
}

// spec: UAP-12-3
#[test]
fn files_of_other_implementations_are_read() {
    let (folder, store) = store();
    let (metadata, state) = checkpoint("s");
    block_on(store.save(metadata.clone(), state.clone())).unwrap();
    drop(store);
    // Another one writes both anew, without a digest.
    let place = folder.path().join("s");
    fs::write(place.join("checkpoint.json"), state.to_json() + "\n").unwrap();
    let known = ubos_common::json::to_string(&metadata);
    fs::write(place.join("metadata.json"), known).unwrap();
    let store = FileCheckpoints::open(folder.path()).unwrap();
    assert_eq!(block_on(store.load("s")).unwrap(), Some(state));
    assert_eq!(block_on(store.load_metadata("s")).unwrap(), Some(metadata));
}
