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
    /// Issuers that may ask; everybody where there is none. Who sends a task can claim to be any of them.
    pub allow: BTreeSet<String>,
    /// Issuers, each with the file of the token by which it is known; where there are some, nobody else may ask.
    pub tokens: Vec<(String, PathBuf)>,
    /// How clients name this server, beside its address.
    pub hosts: Vec<String>,
    /// Where transcript and cache live; in memory where there is none.
    pub store: Option<PathBuf>,
    /// Tasks without an end that a transcript may have at the start; as many as the library says where there is none.
    pub max_interrupted: Option<usize>,
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
  --allow ISSUER    an issuer that may ask; may be said again (default: everybody). The issuer is what
                    the task says: anybody who reaches the address can claim it. See --token
  --token ISSUER=FILE
                    an issuer that may ask with the bearer token in this file; may be said again. Nobody
                    else may ask then
  --host NAME:PORT  how clients name this server beside its address; may be said again. Without it a server
                    on every address answers for addresses and localhost
  --store DIR       where transcript and cache live (default: in memory, 64 MiB of each: a full
                    transcript ends the service, so this is for trying it out)
  --max-interrupted N
                    tasks without an end that are taken up from the transcript, and ended, at the start
                    (default 100000); with more it does not start
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
        tokens: Vec::new(),
        hosts: Vec::new(),
        store: None,
        max_interrupted: None,
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
            "--token" => {
                let told = text(value("an issuer and a file")?);
                let parts = told.split_once('=');
                let parts = parts.filter(|(issuer, file)| !issuer.is_empty() && !file.is_empty());
                let (issuer, file) = parts.ok_or("--token needs ISSUER=FILE")?;
                args.tokens.push((issuer.to_owned(), file.into()));
            }
            "--host" => args.hosts.push(text(value("a name")?)),
            "--store" => args.store = Some(value("a folder")?.into()),
            "--max-interrupted" => {
                let told = text(value("a number")?);
                let number = told.parse().ok().filter(|number| *number > 0);
                args.max_interrupted =
                    Some(number.ok_or("--max-interrupted needs a number above 0")?);
            }
            other => return Err(format!("unknown argument {other}")),
        }
    }
    if args.mcp && !args.tokens.is_empty() {
        return Err("--mcp has no tokens: whoever starts it is the one who asks".to_owned());
    }
    Ok(Parsed::Run(args))
}
