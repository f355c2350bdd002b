//! The command line.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// Where to listen.
    pub listen: String,
    /// Whether the capabilities are tools on standard input and output, in the place of HTTP.
    pub mcp: bool,
    /// The agent's id.
    pub agent: String,
    /// Issuers that may ask; everybody where there is none.
    pub allow: BTreeSet<String>,
    /// Where transcript and cache live; in memory where there is none.
    pub store: Option<PathBuf>,
}

/// What the command line comes to.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Serve.
    Run(Args),
    /// Show [`USAGE`].
    Help,
}

/// The help text.
pub const USAGE: &str = "\
Serves capabilities of SAP V2.0 over HTTP, until it is interrupted. Tasks are posted to the path
/sap/tasks; the same capabilities are MCP tools at the path /mcp (streamable HTTP).

usage: sap-agent [options]

  --listen ADDRESS  where to listen (default 127.0.0.1:0, which takes any free port);
                    the address is printed as one JSON line
  --mcp             serve MCP tools on standard input and output instead, until the input ends
  --agent ID        the agent's id (default A-agent)
  --allow ISSUER    an issuer that may ask; may be said again (default: everybody)
  --store DIR       where transcript and cache live (default: in memory)
  --help            this text

capabilities: text.upper {text}, text.echo {...}, text.count {to}, which reports each step

exit codes: 2 usage or an address that cannot be used, 3 something failed, 130 interrupted,
            143 terminated
";

/// Reads the arguments behind the program's name.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Parsed, String> {
    let mut arguments = arguments.into_iter();
    let mut args = Args {
        listen: "127.0.0.1:0".into(),
        mcp: false,
        agent: "A-agent".into(),
        allow: BTreeSet::new(),
        store: None,
    };
    while let Some(argument) = arguments.next() {
        let argument = argument.to_string_lossy().into_owned();
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.into())),
            _ => (argument.as_str(), None),
        };
        let mut value = |what: &str| {
            let value: Option<OsString> = inline.clone().or_else(|| arguments.next());
            let value = value.filter(|value| !value.is_empty());
            value.ok_or_else(|| format!("{name} needs {what}"))
        };
        let text = |value: OsString| value.to_string_lossy().into_owned();
        match name {
            "--help" | "-h" => return Ok(Parsed::Help),
            "--listen" => args.listen = text(value("an address")?),
            "--mcp" => args.mcp = true,
            "--agent" => args.agent = text(value("an id")?),
            "--allow" => drop(args.allow.insert(text(value("an issuer")?))),
            "--store" => args.store = Some(value("a folder")?.into()),
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(Parsed::Run(args))
}
