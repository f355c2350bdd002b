//! From the command line to the exit code.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use sap::transcript::{Proof, Verdict};
use sap::{CorrelationId, Status, TaskResult};
use ubos_common::canon::Digest;
use ubos_common::id::IdSource;

use super::args::{Args, Parsed, USAGE, parse};
use super::fleet::Fleet;
use super::output::{Document, FolderCounts, SacpPart, SapPart, TranscriptPart, Truncated};
use super::page;
use super::plan::{Ready, prepare};
use super::report::Writer;
use super::scan::{Folder, ScanError, tree_digest};
use super::screen::{Screen, Who};
use super::signals::Signals;
use super::step_id;
use super::step_words::{DONE, failed};
use super::stores::Stores;
use super::toolbox::Toolbox;
use super::tools;
use super::trace::OpenSpan;
use super::words::about_path;
use super::world::{Mission, Parts};

/// How long acts may take to end after Ctrl-C.
const CLEAN_END: Duration = Duration::from_secs(5);

/// Why a mission has no good end, with its exit code.
#[derive(Debug)]
enum Failure {
    /// Usage, or an input that cannot be read.
    Input(String),
    /// Something of ours failed.
    Ours(String),
    /// Ctrl-C, or a request to end.
    Interrupted(u8),
}

/// The whole program.
#[must_use]
pub fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(err) => return complain(&Failure::Ours(format!("no runtime: {err}"))),
    };
    if tools::is_tool_process() {
        return runtime.block_on(tools::serve());
    }
    let args = match parse(std::env::args_os().skip(1), |name| std::env::var_os(name)) {
        Ok(Parsed::Run(args)) => args,
        Ok(Parsed::Help) => {
            let _ = io::stdout().write_all(USAGE.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(mistake) => return complain(&Failure::Input(format!("{mistake} (see --help)"))),
    };
    let code = match runtime.block_on(run(&args)) {
        Ok(document) => finish(&args, &document),
        Err(failure) => complain(&failure),
    };
    // A pass that reads a large file on a thread of its own is not waited for.
    runtime.shutdown_background();
    code
}

fn complain(failure: &Failure) -> ExitCode {
    let (said, code) = match failure {
        Failure::Input(said) => (said.as_str(), 2),
        Failure::Ours(said) => (said.as_str(), 3),
        Failure::Interrupted(code) => ("interrupted", *code),
    };
    let _ = writeln!(io::stderr(), "mission: {}", said.trim_end());
    ExitCode::from(code)
}

fn finish(args: &Args, document: &Document) -> ExitCode {
    if args.json {
        let text = serde_json::to_string(document).unwrap_or_default();
        if let Err(err) = writeln!(io::stdout(), "{text}") {
            return complain(&Failure::Ours(format!("standard output: {err}")));
        }
    }
    let good = document.transcript.verified
        && document.hub.agree
        && document.sap.status == Status::Succeeded.as_str();
    match (
        good,
        document.secrets.is_empty() && document.truncated.secrets == 0,
    ) {
        (false, _) => ExitCode::from(3),
        (true, false) => ExitCode::from(1),
        (true, true) => ExitCode::SUCCESS,
    }
}

/// Whether a page can be where it is to be, before an audit that may take long.
fn has_folder(page: &Path) -> Result<(), Failure> {
    let folder = page.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    if folder.is_dir() && !page.is_dir() {
        return Ok(());
    }
    let page = page.display();
    Err(Failure::Input(format!(
        "--trace {page}: not a file in a folder that is there"
    )))
}

/// The mission, and its pages beside what the screen shows.
async fn run(args: &Args) -> Result<Document, Failure> {
    if let Some(file) = &args.trace {
        has_folder(file)?;
    }
    let screen = Screen::new(args.json);
    let mut ids = IdSource::from_os().map_err(|err| Failure::Ours(err.to_string()))?;
    let correlation: CorrelationId = ids.next_id();
    let id = step_id::mission(correlation);
    let step = screen
        .trace()
        .begin_logged(Who::Mission, id, None, "audits a folder");
    let audited = audit(args, ids, correlation, &screen).await;
    match &audited {
        Ok(_) => step.end(DONE),
        Err(Failure::Input(why) | Failure::Ours(why)) => step.end(failed(why)),
        Err(Failure::Interrupted(_)) => step.end(failed("interrupted")),
    }
    let spans = screen.trace().spans();
    let folder = args.folder.canonicalize();
    let folder = folder
        .as_ref()
        .unwrap_or(&args.folder)
        .display()
        .to_string();
    let traced = args.trace.as_ref().map_or(Ok(()), |file| {
        write_page(file, &page::trace("of an audit of", &folder, &spans, &[]))
    });
    // Why the audit failed says more than a page that could not be written.
    let document = audited?;
    traced?;
    let file = args.state.join("report.html");
    write_page(&file, &page::report(&document, &folder, &spans))?;
    let next = format!(
        "next: open {} in a browser; run this again, and the passes come from the cache; then a program of your own, from \"One example\" in README.md",
        file.display()
    );
    let text = |line: &str| {
        let said = screen.text(line);
        said.map_err(|err| Failure::Ours(format!("standard output: {err}")))
    };
    let secrets = document.secrets.len() as u64 + document.truncated.secrets;
    if secrets > 0 {
        let places = if secrets == 1 {
            "place looks like a secret"
        } else {
            "places look like secrets"
        };
        text(&format!(
            "ends with 1, for {secrets} {places}: a finding, not a fault"
        ))?;
    }
    text(&next)?;
    Ok(document)
}

fn write_page(file: &Path, page: &str) -> Result<(), Failure> {
    std::fs::write(file, page)
        .map_err(|err| Failure::Ours(format!("{}: {}", file.display(), about_path(&err))))
}

async fn audit(
    args: &Args,
    ids: IdSource,
    correlation: CorrelationId,
    screen: &Screen,
) -> Result<Document, Failure> {
    let mut signals =
        Signals::listen().map_err(|err| Failure::Ours(format!("no ear for signals: {err}")))?;
    let writer = Writer::new(args.model.as_deref(), &args.state).map_err(Failure::Input)?;
    let folder = folder(args)?;
    let stores = Stores::open(&args.state, screen).map_err(Failure::Ours)?;
    let kept = stores.verify(None).map_err(Failure::Ours)?;
    if let Verdict::Broken { what, .. } = &kept.verdict {
        return Err(Failure::Ours(format!(
            "the transcript in {} was changed: {what}",
            args.state.display()
        )));
    }
    let run = correlation.to_string();
    screen.trace().log_to(stores.steps(&run));
    screen.say(Who::Mission, format!("audits {}", folder.path.display()));
    let (tree, files) = survey(&folder, &run, &mut signals, screen).await?;
    screen.say(
        Who::Mission,
        format!(
            "{files} files, tree {}",
            tree.to_string().get(..12).unwrap_or_default()
        ),
    );
    let words = format!("audit {}", folder.path.display());
    let step = part(screen, Who::Sacp, "plan", &run, "plans the audit");
    let ready = prepare(&words, &run, &mut |line| screen.say(Who::Sacp, line));
    step.end_with(&ready.as_ref().map_err(|error| &error.details));
    let ready = ready.map_err(|error| Failure::Ours(error.to_string()))?;

    let (toolbox, fleet) = launch(&folder, &run, &stores, screen).await?;
    let parts = Parts {
        toolbox,
        fleet,
        message: ready.message.clone(),
        tree,
        writer,
        screen: screen.clone(),
    };
    let mission = Mission::new(parts, &stores, ids, correlation).await;
    let mission = mission.map_err(Failure::Ours)?;
    let result = work(&mission, &mut signals, screen).await;
    let told = result.and_then(|result| tell(&mission, &ready, &result, &run));
    mission.stop().await;
    let proof = stores.verify(Some(&kept.head)).map_err(Failure::Ours)?;
    conclude(told, &proof, screen)
}

/// A part of the mission begins.
fn part(screen: &Screen, who: Who, part: &str, run: &str, name: &str) -> OpenSpan {
    let (id, mission) = (step_id::part(part, run), step_id::mission(run));
    screen.trace().begin_logged(who, id, Some(&mission), name)
}

/// What is to be read, by digest; a large folder takes a while.
async fn survey(
    folder: &Folder,
    run: &str,
    signals: &mut Signals,
    screen: &Screen,
) -> Result<(Digest, usize), Failure> {
    let folder = folder.clone();
    let step = part(screen, Who::Mission, "survey", run, "walks the folder");
    let walk = tokio::task::spawn_blocking(move || tree_digest(&folder, &mut |_: usize| true));
    tokio::select! {
        surveyed = walk => {
            let surveyed = surveyed.map_err(|err| Failure::Ours(err.to_string()))?;
            step.end_with(&surveyed);
            surveyed.map_err(unreadable)
        }
        code = signals.came() => Err(Failure::Interrupted(code)),
    }
}

/// Starts the tool process, and the hub with its agents.
async fn launch(
    folder: &Folder,
    run: &str,
    stores: &Stores,
    screen: &Screen,
) -> Result<(Toolbox, Fleet), Failure> {
    let begin = |who, id, name| part(screen, who, id, run, name);
    let (tools, hub) = (
        begin(Who::Wire, "tools", "launches the tool process"),
        begin(Who::Hub, "fleet", "starts the hub and its agents"),
    );
    let launched = tokio::join!(
        async {
            let toolbox = Toolbox::launch(folder, run, &stores.audit, screen).await;
            tools.end_with(&toolbox);
            toolbox
        },
        async {
            let fleet = Fleet::start(folder, stores.jobs.clone(), screen).await;
            hub.end_with(&fleet);
            fleet
        },
    );
    match launched {
        (Ok(toolbox), Ok(fleet)) => Ok((toolbox, fleet)),
        (toolbox, fleet) => {
            if let Ok(toolbox) = &toolbox {
                toolbox.stop().await;
            }
            let why = toolbox.err().or_else(|| fleet.err()).unwrap_or_default();
            Err(Failure::Ours(why))
        }
    }
}

/// Runs the audit; Ctrl-C cancels every task, and their results are still written down.
async fn work(
    mission: &Arc<Mission>,
    signals: &mut Signals,
    screen: &Screen,
) -> Result<TaskResult, Failure> {
    let governed = mission.governed().map_err(Failure::Ours)?;
    let mut audit = pin!(async {
        let result = mission.run().await?;
        if result.status == Status::Succeeded {
            let root = governed.root.to_string();
            mission.toolbox().exercise_cancel(&root).await?;
        }
        Ok::<TaskResult, String>(result)
    });
    let code = tokio::select! {
        // First the audit: a task can be cancelled once it has begun.
        biased;
        result = &mut audit => return result.map_err(Failure::Ours),
        code = signals.came() => code,
    };
    screen.say(Who::Mission, "interrupted; ending what runs");
    governed.cancel_all();
    // Whether they end in time or not, the transcript holds what was done.
    tokio::select! {
        _ = tokio::time::timeout(CLEAN_END, &mut audit) => {}
        _ = signals.came() => {}
    }
    Err(Failure::Interrupted(code))
}

/// What `--json` says, but for the transcript.
fn tell(
    mission: &Mission,
    ready: &Ready,
    result: &TaskResult,
    correlation: &str,
) -> Result<Document, Failure> {
    let why = || {
        result
            .error
            .as_ref()
            .and_then(|error| error.message.clone())
            .unwrap_or_default()
    };
    if result.status != Status::Succeeded {
        return Err(Failure::Ours(format!(
            "the audit ended {}: {}",
            result.status,
            why()
        )));
    }
    let missing = || Failure::Ours("the audit ended well and left nothing".to_owned());
    let findings = mission.made.findings.get().ok_or_else(missing)?.clone();
    let (report, agent) = mission.made.report.get().ok_or_else(missing)?.clone();
    let tally = mission.governed().map_err(Failure::Ours)?.tally();
    let figures = findings.figures;
    Ok(Document {
        folder: FolderCounts {
            files: figures.files,
            lines: figures.lines,
            bytes: figures.bytes,
            languages: figures.languages,
        },
        largest: findings.largest,
        notes: findings.notes,
        duplicates: findings.duplicates,
        secrets: findings.secrets,
        truncated: Truncated {
            notes: findings.more_notes,
            duplicates: findings.more_duplicates,
            secrets: findings.more_secrets,
            unreadable: figures.more_unreadable,
        },
        unreadable: figures.unreadable,
        sap: SapPart {
            task_id: result.task_id.to_string(),
            correlation_id: correlation.to_owned(),
            status: result.status.to_string(),
            alignment: result.constitutional_evidence.alignment.to_string(),
            tasks: tally.tasks,
            cache_hits: tally.hits,
            cache_misses: tally.misses,
        },
        sacp: SacpPart {
            steps: mission.made.steps.get().copied().unwrap_or_default(),
            spawned: ready.spawned.len() as u64,
        },
        opensentience: mission.toolbox().part(),
        hub: mission.hub(),
        agent,
        transcript: TranscriptPart::default(),
        report,
    })
}

/// The last words: the report, and one line that verifies transcript and chain.
fn conclude(
    told: Result<Document, Failure>,
    proof: &Proof,
    screen: &Screen,
) -> Result<Document, Failure> {
    let verified = proof.verdict == Verdict::Intact;
    let line = match &proof.verdict {
        Verdict::Intact => format!(
            "transcript: {} records, chain verified, head {}",
            proof.records, proof.head
        ),
        Verdict::Broken { what, .. } => format!(
            "transcript: {} records, NOT verified: {what}",
            proof.records
        ),
        _ => "transcript: not verified".to_owned(),
    };
    let mut document = match told {
        Ok(document) => document,
        Err(failure) => {
            let _ = screen.text(&format!("\n{line}"));
            return Err(failure);
        }
    };
    complain_of_unreadable(&document);
    screen
        .text(&format!("\n{}\n\n{line}", document.report.trim_end()))
        .map_err(|err| Failure::Ours(format!("standard output: {err}")))?;
    document.transcript = TranscriptPart {
        records: proof.records,
        verified,
        head: proof.head.as_ref().to_owned(),
    };
    Ok(document)
}

fn complain_of_unreadable(document: &Document) {
    /// Complaints that a person reads; the document holds the others.
    const SHOWN: usize = 20;
    for entry in document.unreadable.iter().take(SHOWN) {
        let _ = writeln!(io::stderr(), "mission: {}: {}", entry.path, entry.why);
    }
    let listed = document.unreadable.len().saturating_sub(SHOWN) as u64;
    let more = listed + document.truncated.unreadable;
    if more > 0 {
        let _ = writeln!(io::stderr(), "mission: and {more} more");
    }
}

/// The folder as it is, and the state inside it left out.
fn folder(args: &Args) -> Result<Folder, Failure> {
    let shown = |path: &Path, err: &io::Error| {
        Failure::Input(format!("{}: {}", path.display(), about_path(err)))
    };
    let path = args
        .folder
        .canonicalize()
        .map_err(|err| shown(&args.folder, &err))?;
    std::fs::read_dir(&path).map_err(|err| shown(&args.folder, &err))?;
    let state = make_state(&args.state).map_err(|err| shown(&args.state, &err))?;
    if state == path {
        let why = "the state needs a folder of its own, not the one that is audited";
        return Err(Failure::Input(format!("{}: {why}", args.state.display())));
    }
    let excluded = state.starts_with(&path).then_some(state);
    Ok(Folder {
        path,
        no_ignore: args.no_ignore,
        excluded,
    })
}

/// Makes the state folder, for its owner alone.
fn make_state(path: &Path) -> io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)?;
    path.canonicalize()
}

fn unreadable(err: ScanError) -> Failure {
    Failure::Input(err.to_string())
}
