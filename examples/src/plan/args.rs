//! The command line, read by hand.

use std::ffi::OsString;
use std::path::PathBuf;

/// What was asked for.
#[derive(Debug, Default)]
pub struct Args {
    /// The plan; `-` is standard input.
    pub file: PathBuf,
    /// Verbs, tools and agents to hold it against.
    pub library: Option<PathBuf>,
    /// How it is drawn.
    pub drawing: Drawing,
    /// Whether findings are JSON lines, and nothing is drawn.
    pub json: bool,
    /// Whether the plan is run.
    pub run: bool,
    /// The commands of its tools.
    pub tools: super::run::Tools,
    /// Whether it is run in spite of MUST findings.
    pub overrule: bool,
}

/// How a plan is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drawing {
    /// As Mermaid.
    #[default]
    Mermaid,
    /// As DOT.
    Dot,
    /// Not at all.
    None,
}

/// What the command line comes to.
#[derive(Debug)]
pub enum Parsed {
    /// Check.
    Run(Args),
    /// Show [`USAGE`].
    Help,
}

/// The help text.
pub const USAGE: &str = "\
Checks a plan of SACP 0.1 or 1.0, shows each finding under its source line with what would mend it, and draws the plan.

usage: sacp-plan [--library FILE] [--dot | --no-drawing] [--json] FILE
       sacp-plan --run [--tool NAME=COMMAND]... [--library FILE] [--overrule] FILE

  --library FILE  verbs, tools and agents as JSON, each list may be absent:
                  {\"verbs\": [{\"name\": \"search\", \"description\": \"\", \"inputs\": [\"city\"], \"outputs\": {}}],
                   \"tools\": [{\"id\": \"H_API\", \"description\": \"\", \"supported_verbs\": [\"search\"]}],
                   \"agents\": [{\"agent_name\": \"Finder\", \"description\": \"\", \"supported_verbs\": [\"search\"],
                               \"supported_tools\": [\"H_API\"], \"inputs\": [\"city\"], \"outputs\": [\"hotels\"]}]}
  --dot           draw DOT instead of Mermaid
  --no-drawing    draw nothing
  --json          one JSON line a finding, and no drawing
  --run           run the plan: its answer is one JSON line on standard output, its steps stand on standard error
  --tool NAME=COMMAND
                  how a tool is carried out: a shell command with parameters as JSON on standard input and the output
                  as JSON on standard output; `inputs` are the outputs that the act waited for
  --overrule      run the plan in spite of MUST findings, which the answer then names
  --help          this text

A file called - is standard input.

exit codes: 0 a good plan, or one that ran; 1 a MUST finding, or a run that failed; 2 usage or unreadable file, 3 something failed;
            130 after Ctrl-C, 143 after SIGTERM: no command goes on
";

/// Reads the arguments behind the program's name.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Parsed, String> {
    let mut arguments = arguments.into_iter();
    let mut args = Args::default();
    let (mut file, mut plain) = (None, false);
    while let Some(argument) = arguments.next() {
        match argument.to_str().filter(|_| !plain) {
            Some("--") => plain = true,
            Some("--help" | "-h") => return Ok(Parsed::Help),
            Some("--dot") => args.drawing = Drawing::Dot,
            Some("--no-drawing") => args.drawing = Drawing::None,
            Some("--json") => args.json = true,
            Some("--run") => args.run = true,
            Some("--overrule") => args.overrule = true,
            Some("--tool") => {
                let given = arguments.next().ok_or("--tool needs NAME=COMMAND")?;
                add_tool(&mut args.tools, given.to_str().unwrap_or_default())?;
            }
            Some(option) if option.starts_with("--tool=") => {
                add_tool(&mut args.tools, option.trim_start_matches("--tool="))?;
            }
            Some("--library") => {
                let given = arguments.next().ok_or("--library needs a file")?;
                args.library = Some(given.into());
            }
            Some(option) if option.starts_with("--library=") => {
                args.library = option.strip_prefix("--library=").map(PathBuf::from);
            }
            Some(option) if option.starts_with('-') && option.len() > 1 => {
                return Err(format!("unknown option {option}"));
            }
            _ if file.is_none() => file = Some(PathBuf::from(argument)),
            _ => return Err("one file is wanted".to_owned()),
        }
    }
    args.file = file.ok_or("a file is wanted")?;
    Ok(Parsed::Run(args))
}

fn add_tool(tools: &mut super::run::Tools, given: &str) -> Result<(), String> {
    let (name, command) = given
        .split_once('=')
        .filter(|(name, command)| !name.is_empty() && !command.is_empty())
        .ok_or("--tool needs NAME=COMMAND")?;
    match tools.insert(name.to_owned(), command.to_owned()) {
        Some(_) => Err(format!("two commands for the tool {name}")),
        None => Ok(()),
    }
}
