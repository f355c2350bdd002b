//! The properties of a run that is resumed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::program::{Broken, DIFFERS, Ended, LATE, PAUSED, Process, ResumeProgram, UNREADABLE};

/// Stops at which a run is killed, at most. A run with more is killed at these.
const MAX_STOPS: usize = 64;

/// How many processes do the same at the same time.
const CROWD: usize = 8;

/// Places of each file that are changed.
const CHANGES: usize = 12;

/// What a check has seen, in words.
pub(super) type Checked = Result<String, Broken>;

/// A place for the folders of runs.
struct Scratch {
    root: tempfile::TempDir,
    made: usize,
}

impl Scratch {
    fn new() -> Result<Self, Broken> {
        let root = tempfile::tempdir().map_err(failed)?;
        Ok(Self { root, made: 0 })
    }

    /// The path of a folder that is not there yet.
    fn path(&mut self) -> PathBuf {
        self.made += 1;
        self.root.path().join(self.made.to_string())
    }

    fn folder(&mut self) -> Result<PathBuf, Broken> {
        let path = self.path();
        fs::create_dir(&path).map_err(failed)?;
        Ok(path)
    }

    fn copy(&mut self, from: &Path) -> Result<PathBuf, Broken> {
        let to = self.path();
        copy(from, &to).map_err(failed)?;
        Ok(to)
    }
}

fn failed(error: std::io::Error) -> Broken {
    Broken::new(format!("the kit's files fail: {error}"))
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// All files below a folder, in order.
fn files(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut paths: Vec<_> = fs::read_dir(folder)?
        .map(|it| it.map(|it| it.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    for path in paths {
        match path.is_dir() {
            true => files(&path, found)?,
            false => found.push(path),
        }
    }
    Ok(())
}

/// Approves every question and resumes, until the run ends. Returns the keys of the effects that were done.
fn to_the_end(program: &ResumeProgram, folder: &Path, first: &str) -> Result<Vec<String>, Broken> {
    let mut done = Vec::new();
    let mut ended = program.ask(first, folder)?;
    for _ in 0..MAX_STOPS {
        done.extend(ended.told("done"));
        if !is_paused(program, folder, first, ended)? {
            return Ok(done);
        }
        ended = program.ask("resume", folder)?;
    }
    Err(Broken::new("the run asks persons without end"))
}

/// Whether a run has paused; its questions are approved then. A run that has not must have ended well.
fn is_paused(
    program: &ResumeProgram,
    folder: &Path,
    verb: &str,
    ended: Ended,
) -> Result<bool, Broken> {
    if ended.code != Some(PAUSED) {
        return ended.done(verb).map(|_| false);
    }
    let questions = ended.told("question");
    if questions.is_empty() {
        return Err(Broken::new(
            "the run waits for a person, and names no question",
        ));
    }
    for question in questions {
        program
            .run(&["answer".as_ref(), folder.as_ref(), question.as_ref()])?
            .done("answer")?;
    }
    Ok(true)
}

fn record(program: &ResumeProgram, folder: &Path) -> Result<Ended, Broken> {
    program.ask("record", folder)?.done("record")
}

fn states(program: &ResumeProgram, folder: &Path) -> Result<Vec<String>, Broken> {
    Ok(program.ask("states", folder)?.done("states")?.told("state"))
}

/// Starts a run, answers what it asks, and holds it at its nth stop, from 1: the stops up to there, and the process that
/// waits. `None` where the run ends before.
fn held_at(
    program: &ResumeProgram,
    folder: &Path,
    stop: usize,
) -> Result<Option<(Vec<String>, Process)>, Broken> {
    let mut seen = Vec::new();
    let mut verb = "start";
    for _ in 0..MAX_STOPS {
        let mut process = program.spawn(&[verb.as_ref(), folder.as_ref()], true)?;
        while let Some(place) = process.next_stop()? {
            seen.push(place);
            if seen.len() == stop {
                return Ok(Some((seen, process)));
            }
            process.go_on();
        }
        if !is_paused(program, folder, verb, process.end()?)? {
            return Ok(None);
        }
        verb = "resume";
    }
    Err(Broken::new("the run asks persons without end"))
}

/// Kills a run at each of its stops, before and behind its pauses, each time in a folder of its own, and looks at what is left:
/// the folder, and the stops up to the kill. Returns how often.
fn kills(
    program: &ResumeProgram,
    scratch: &mut Scratch,
    mut look: impl FnMut(&mut Scratch, &Path, &[String]) -> Result<(), Broken>,
) -> Result<usize, Broken> {
    for stop in 1..=MAX_STOPS {
        let folder = scratch.folder()?;
        let Some((seen, process)) = held_at(program, &folder, stop)? else {
            return match stop {
                1 => Err(Broken::new(
                    "the run has no effect at which it can be killed",
                )),
                _ => Ok(stop - 1),
            };
        };
        process.kill();
        let place = seen.last().cloned().unwrap_or_default();
        look(scratch, &folder, &seen).map_err(|broken| match broken {
            Broken::Seen(what) => Broken::new(format!("killed at stop {stop} ({place}): {what}")),
            unknown => unknown,
        })?;
    }
    Ok(MAX_STOPS)
}

/// What was recorded before the cut is the beginning of the resumed run, entry for entry.
pub(super) fn prefix(program: &ResumeProgram) -> Checked {
    let mut scratch = Scratch::new()?;
    let count = kills(program, &mut scratch, |_, folder, _| {
        let before = record(program, folder)?.told("entry");
        to_the_end(program, folder, "resume")?;
        let after = record(program, folder)?.told("entry");
        let same = before
            .iter()
            .zip(&after)
            .take_while(|(one, other)| one == other);
        match same.count() {
            same if same < before.len() => Err(Broken::new(format!(
                "entry {same} is another after the resumption"
            ))),
            _ => Ok(()),
        }
    })?;
    Ok(format!("{count} kills"))
}

/// What is recorded is not done again, and nothing is done before it is recorded that it is asked.
pub(super) fn exactly_once(program: &ResumeProgram) -> Checked {
    let mut scratch = Scratch::new()?;
    let whole = scratch.folder()?;
    let wanted: BTreeSet<_> = to_the_end(program, &whole, "start")?.into_iter().collect();
    let count = kills(program, &mut scratch, |_, folder, seen| {
        let before = record(program, folder)?;
        let begun = seen
            .iter()
            .filter(|line| line.starts_with("effect "))
            .count();
        let asked = before.told("asked").len();
        if begun > asked {
            let what = format!("{begun} effects have begun, and {asked} are recorded as asked");
            return Err(Broken::new(what));
        }
        let again = to_the_end(program, folder, "resume")?;
        let answered = before.told("answered");
        if let Some(key) = again.iter().find(|key| answered.contains(key)) {
            return Err(Broken::new(format!(
                "{key} was recorded, and is done again"
            )));
        }
        let done = seen.iter().filter_map(|line| line.strip_prefix("done "));
        let all: BTreeSet<_> = done
            .map(str::to_owned)
            .chain(again.iter().cloned())
            .collect();
        let twice = again.len() - again.iter().collect::<BTreeSet<_>>().len();
        if all != wanted || twice > 0 {
            let what = format!("{all:?} are done ({twice} twice), and {wanted:?} without a kill");
            return Err(Broken::new(what));
        }
        Ok(())
    })?;
    Ok(format!("{count} kills"))
}

/// Two forks at one entry come to the same, and the original stays as it is.
pub(super) fn forks(program: &ResumeProgram) -> Checked {
    let mut scratch = Scratch::new()?;
    let whole = scratch.folder()?;
    to_the_end(program, &whole, "start")?;
    let before = record(program, &whole)?;
    let answered = before.told("answered").len().min(MAX_STOPS);
    for nth in 1..=answered {
        let mut came_to = Vec::new();
        for _ in 0..2 {
            let fork = scratch.folder()?;
            let place = nth.to_string();
            program
                .run(&[
                    "fork".as_ref(),
                    whole.as_ref(),
                    fork.as_ref(),
                    place.as_ref(),
                ])?
                .done("fork")?;
            to_the_end(program, &fork, "resume")?;
            came_to.push(states(program, &fork)?);
        }
        if came_to.first() != came_to.last() {
            return Err(Broken::new(format!(
                "two forks at answer {nth} come to different states"
            )));
        }
        if record(program, &whole)?.lines != before.lines {
            return Err(Broken::new(format!(
                "the fork at answer {nth} changed its original"
            )));
        }
    }
    Ok(format!("{answered} places"))
}

/// A checkpoint that is loaded is a state of the run; a damaged one is refused with a reason.
pub(super) fn checkpoints(program: &ResumeProgram) -> Checked {
    let mut scratch = Scratch::new()?;
    let whole = scratch.folder()?;
    to_the_end(program, &whole, "start")?;
    let known: BTreeSet<_> = states(program, &whole)?.into_iter().collect();
    let mut loaded = 0_usize;
    let count = kills(program, &mut scratch, |_, folder, _| {
        let ended = program.ask("checkpoint", folder)?.done("checkpoint")?;
        let strange = ended
            .told("state")
            .into_iter()
            .find(|it| !known.contains(it));
        loaded += ended.told("state").len();
        match strange {
            Some(state) => Err(Broken::new(format!(
                "a checkpoint is no state of the run: {state}"
            ))),
            None => Ok(()),
        }
    })?;
    if loaded == 0 {
        return Err(Broken::new("no run that was killed has left a checkpoint"));
    }
    let mut all = Vec::new();
    files(&whole, &mut all).map_err(failed)?;
    let mut changes = 0_usize;
    for file in &all {
        let length = fs::metadata(file).map_err(failed)?.len();
        for nth in 0..CHANGES.min(usize::try_from(length).unwrap_or(CHANGES)) {
            let copied = scratch.copy(&whole)?;
            let target = copied.join(file.strip_prefix(&whole).unwrap_or(file));
            let place = damage(&target, nth)?;
            is_known_or_refused(program, &copied, &known, || {
                format!("{place} of {}", name_of(&target))
            })?;
            changes += 1;
            fs::remove_dir_all(&copied).map_err(failed)?;
        }
    }
    Ok(format!("{count} kills, {loaded} loaded, {changes} damaged"))
}

/// A file of another session's run in the place of one of this run is refused with a reason, or nothing of it is loaded.
pub(super) fn foreign(program: &ResumeProgram) -> Checked {
    let mut scratch = Scratch::new()?;
    let (whole, other) = (scratch.folder()?, scratch.folder()?);
    let ended = program.ask("other", &other)?;
    if ended.code != Some(PAUSED) {
        ended.done("other")?;
    }
    to_the_end(program, &whole, "start")?;
    let known: BTreeSet<_> = states(program, &whole)?.into_iter().collect();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    files(&whole, &mut ours).map_err(failed)?;
    files(&other, &mut theirs).map_err(failed)?;
    let pairs = ours.iter().flat_map(|place| {
        let alike = |file: &&PathBuf| file.file_name() == place.file_name();
        theirs.iter().filter(alike).map(move |file| (place, file))
    });
    let pairs: Vec<_> = pairs.collect();
    // One by one, and all at once.
    let swaps = pairs.chunks(1).chain([&*pairs]);
    for swap in swaps.clone() {
        let copied = scratch.copy(&whole)?;
        for (place, file) in swap {
            let place = place.strip_prefix(&whole).unwrap_or(place);
            fs::copy(file, copied.join(place)).map_err(failed)?;
        }
        is_known_or_refused(program, &copied, &known, || {
            let names: Vec<_> = swap.iter().map(|(place, _)| name_of(place)).collect();
            format!("another session's {}", names.join(", "))
        })?;
        fs::remove_dir_all(&copied).map_err(failed)?;
    }
    Ok(format!("{} files of another session", pairs.len()))
}

fn name_of(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Whether the checkpoint of a folder is a state of the run, is not there, or is refused with a reason.
fn is_known_or_refused(
    program: &ResumeProgram,
    folder: &Path,
    known: &BTreeSet<String>,
    what: impl FnOnce() -> String,
) -> Result<(), Broken> {
    let ended = program.ask("checkpoint", folder)?;
    let told = ended.told("state");
    let is_sound = match ended.code {
        Some(0) => told.iter().all(|state| known.contains(state)),
        _ => is_refused(&ended, UNREADABLE),
    };
    match is_sound {
        true => Ok(()),
        false => {
            let what = format!("{}: {:?}, {told:?}", what(), ended.code);
            Err(Broken::new(what))
        }
    }
}

/// Changes a file: the last turn cuts it, the others flip a bit. Returns what was done.
fn damage(file: &Path, nth: usize) -> Result<String, Broken> {
    let mut bytes = fs::read(file).map_err(failed)?;
    let place = bytes.len() * nth / CHANGES.min(bytes.len().max(1));
    let what = match bytes.get_mut(place) {
        Some(_) if nth % 6 == 5 => {
            bytes.truncate(place);
            format!("cut at byte {place}")
        }
        Some(byte) => {
            *byte ^= 1 << (nth % 8);
            format!("a changed bit in byte {place}")
        }
        None => "nothing".to_owned(),
    };
    fs::write(file, bytes).map_err(failed)?;
    Ok(what)
}

/// One pause is answered once, and the effect behind it happens once.
pub(super) fn consume_once(program: &ResumeProgram) -> Checked {
    let mut scratch = Scratch::new()?;
    let folder = scratch.folder()?;
    let mut ended = program.ask("start", &folder)?;
    let mut pauses = 0_usize;
    while ended.code == Some(PAUSED) && pauses < MAX_STOPS {
        pauses += 1;
        for question in ended.told("question") {
            let answer = ["answer".as_ref(), folder.as_ref(), question.as_ref()];
            let taken = crowd(program, &answer)?;
            let won = taken.iter().filter(|ended| ended.code == Some(0)).count();
            let refused = taken.iter().filter(|ended| is_refused(ended, LATE)).count();
            if won != 1 || won + refused != CROWD {
                let what = format!("of {CROWD} answers {won} are taken and {refused} refused");
                return Err(Broken::new(what));
            }
        }
        let resumed = crowd(program, &["resume".as_ref(), folder.as_ref()])?;
        let done: Vec<_> = resumed
            .iter()
            .flat_map(|ended| ended.told("done"))
            .collect();
        let kinds: BTreeSet<_> = done.iter().collect();
        if done.is_empty() || kinds.len() != done.len() {
            let refused: Vec<_> = resumed
                .iter()
                .flat_map(|ended| ended.told("refused"))
                .collect();
            return Err(Broken::new(format!(
                "{CROWD} processes that resume have done {done:?}, and are refused as {refused:?}"
            )));
        }
        let idle = resumed.iter().filter(|ended| ended.told("done").is_empty());
        for other in idle {
            let is_told = is_refused(other, LATE) || matches!(other.code, Some(0 | PAUSED));
            if !is_told {
                return Err(Broken::new(format!(
                    "a resumer that lost ends with {:?}",
                    other.code
                )));
            }
        }
        ended = program.ask("resume", &folder)?;
        if matches!(ended.code, Some(LATE | UNREADABLE)) {
            return Err(Broken::new("the run cannot be resumed behind the crowd"));
        }
    }
    match pauses {
        0 => Err(Broken::new("the run asks no person")),
        _ => Ok(format!("{pauses} pauses, {CROWD} processes at each")),
    }
}

/// Whether a verb was refused with this code and a reason.
fn is_refused(ended: &Ended, code: i32) -> bool {
    ended.code == Some(code) && ended.told("refused").iter().any(|why| !why.is_empty())
}

/// The same verb, in several processes at the same time.
fn crowd(program: &ResumeProgram, arguments: &[&std::ffi::OsStr]) -> Result<Vec<Ended>, Broken> {
    let all: Result<Vec<_>, _> = (0..CROWD)
        .map(|_| program.spawn(arguments, false))
        .collect();
    all?.into_iter().map(Process::end).collect()
}

/// Two resumptions of one record come to the same, and a changed program is told what differs.
pub(super) fn recovery(program: &ResumeProgram) -> Checked {
    let mut scratch = Scratch::new()?;
    let mut told = 0_usize;
    let count = kills(program, &mut scratch, |scratch, folder, seen| {
        let mut came_to = Vec::new();
        for _ in 0..2 {
            let copied = scratch.copy(folder)?;
            to_the_end(program, &copied, "resume")?;
            came_to.push((
                states(program, &copied)?,
                record(program, &copied)?.told("entry"),
            ));
        }
        if came_to.first() != came_to.last() {
            return Err(Broken::new("two resumptions come to different runs"));
        }
        let before = record(program, folder)?;
        let changed = program.ask("changed", folder)?;
        let names = changed.told("differs").iter().any(|what| !what.is_empty());
        if changed.code != Some(DIFFERS) || !names || !changed.told("effect").is_empty() {
            let what = format!(
                "a changed program ends with {:?}: {:?}",
                changed.code, changed.lines
            );
            return Err(Broken::new(what));
        }
        if record(program, folder)?.lines != before.lines {
            return Err(Broken::new("a changed program has changed the record"));
        }
        told += seen.len();
        Ok(())
    })?;
    Ok(format!("{count} kills, {told} effects before them"))
}
