//! `hub-hostile`: attacks on a hub.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use ubos_conformance::hub::HostileRun;

use super::hub::USAGE;

/// The longest time of an attack: an hour.
const MAX_SECONDS: u64 = 3600;

/// Attacks what the arguments say.
pub(super) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let run = match parse(arguments) {
        Ok(Some(run)) => run,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(why) => return told(&why),
    };
    match run.run() {
        Ok(report) => {
            println!("{report}");
            ExitCode::from(u8::from(!report.is_survived()))
        }
        Err(err) => told(&err.to_string()),
    }
}

fn told(why: &str) -> ExitCode {
    eprintln!("conformance: {why}");
    ExitCode::from(2)
}

fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Option<HostileRun>, String> {
    let (mut url, mut process, mut growth) = (None, None, None);
    let mut seconds = 5;
    while let Some(argument) = arguments.next() {
        let name = argument.to_string_lossy().into_owned();
        let mut value = || {
            let value = arguments.next().and_then(|value| value.into_string().ok());
            value.ok_or_else(|| format!("{name} needs a value"))
        };
        let number = |given: String| {
            let number: Result<u64, _> = given.parse();
            number.map_err(|_| format!("{name} needs a whole number, and {given} is none"))
        };
        match name.as_str() {
            "--help" | "-h" => return Ok(None),
            "--url" => url = Some(value()?),
            "--pid" => process = Some(number(value()?)?),
            "--seconds" => seconds = number(value()?)?,
            "--max-growth" => growth = Some(number(value()?)?),
            _ => return Err(format!("unknown argument {name}; --help tells more")),
        }
    }
    if !(1..=MAX_SECONDS).contains(&seconds) {
        return Err(format!("--seconds needs a number from 1 to {MAX_SECONDS}"));
    }
    let mut run =
        HostileRun::new(url.ok_or("--url is wanted")?).with_time(Duration::from_secs(seconds));
    if let Some(process) = process {
        let process = u32::try_from(process).map_err(|_| "--pid needs the id of a process")?;
        run = run.with_process(process);
    }
    if let Some(growth) = growth {
        run = run.with_max_growth(growth);
    }
    Ok(Some(run))
}
