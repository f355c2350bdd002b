//! `sap-http`: an endpoint of SAP that runs.

use std::ffi::OsString;
use std::hash::{BuildHasher as _, Hasher as _};
use std::process::ExitCode;

use ubos_common::secret::Secret;
use ubos_conformance::Expectations;
use ubos_conformance::sap::{HttpEndpoint, Work, endpoint_kit};

use super::args::{self, Form};
use super::hub::show;
use super::out::{printed, shown};
use super::{Proof, proof_of, with_floor};

pub(super) const USAGE: &str = "\
Judges an endpoint of SAP V2.0 over HTTP, by what it answers to tasks that are posted to it.

usage: conformance sap-http --url URL --capability NAME [--payload JSON] [--slow NAME [--slow-payload JSON]] [--issuer ID]
       [--bearer-file FILE] [--report FORM]

The capability must succeed with the payload ({} by default) within 30 seconds, and the issuer (A-conformance by default)
must be allowed to have it done. Each run posts some 35 tasks, with ids of its own. Work that goes on for five seconds or more
(--slow) is ended by a deadline, and cancelled by DELETE URL/<taskId>?issuer=<id>; without such work, or where the endpoint knows
no DELETE, that is not judged.

The kit speaks HTTP/1.1 in the clear. To judge an endpoint that speaks TLS, let a program that ends TLS stand on this machine and
give its address: socat TCP-LISTEN:8443,bind=127.0.0.1,fork,reuseaddr OPENSSL:agent.example:443, and --url
http://127.0.0.1:8443/sap/tasks. Requests name the host of --url: the endpoint, or that program, must answer for it.

  --bearer-file FILE
                  sends the bearer token in this file with each request. It goes in the clear to the host of --url
  --expect FILE   what the author of the peer declares about it; conformance --help tells more
  --report FORM   table (the default), json or junit
  --help          this text

exit codes: 0 it conforms, 1 it does not, or too little of it could be judged, 2 usage
";

/// Judges what the arguments say, if they are for this kit.
pub(super) fn main(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter();
    if arguments.next()? != "sap-http" {
        return None;
    }
    Some(match parse(arguments) {
        Ok(None) => printed(USAGE, 0),
        Ok(Some(asked)) => {
            let kit = endpoint_kit();
            let expectations = with_floor(&asked.expectations, kit.cases().len() / 2);
            let report = kit.run(&expectations, |_| Ok(Box::new(asked.endpoint.clone())));
            show(&report, asked.form)
        }
        Err(why) => {
            note!("conformance: {why}");
            ExitCode::from(2)
        }
    })
}

struct Asked {
    endpoint: HttpEndpoint,
    form: Form,
    expectations: Expectations,
}

fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Option<Asked>, String> {
    let (mut form, mut url, mut capability) = (Form::Table, None, None);
    let (mut payload, mut issuer) = ("{}".to_owned(), "A-conformance".to_owned());
    let (mut slow, mut slow_payload) = (None, "{}".to_owned());
    let (mut expectations, mut bearer) = (Expectations::new(), None);
    while let Some(argument) = arguments.next() {
        let name = argument.to_string_lossy().into_owned();
        let mut value = || {
            let value = arguments.next().and_then(|value| value.into_string().ok());
            value.ok_or_else(|| format!("{name} needs a value"))
        };
        match name.as_str() {
            "--help" | "-h" => return Ok(None),
            "--url" => url = Some(value()?),
            "--capability" => capability = Some(value()?),
            "--payload" => payload = value()?,
            "--slow" => slow = Some(value()?),
            "--slow-payload" => slow_payload = value()?,
            "--issuer" => issuer = value()?,
            "--bearer-file" => bearer = Some(value()?),
            "--expect" => expectations = args::expectations_of(arguments.next())?,
            "--report" => form = args::form_of(arguments.next())?,
            _ => {
                return Err(format!(
                    "unknown argument {}; --help tells more",
                    shown(&name)
                ));
            }
        }
    }
    let wanted = "--url and --capability are wanted; --help tells more";
    let (url, capability) = url.zip(capability).ok_or(wanted)?;
    let payload = serde_json::from_str(&payload).map_err(|_| "--payload needs JSON")?;
    // Ids of an earlier run are known to the endpoint. The standard library seeds its hashers at random.
    let seed = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish();
    let mut work = Work::new(capability, payload, issuer, seed);
    if let Some(slow) = slow {
        let payload = serde_json::from_str(&slow_payload);
        work = work.with_slow(slow, payload.map_err(|_| "--slow-payload needs JSON")?);
    }
    let mut endpoint = HttpEndpoint::new(&url, work).map_err(|why| format!("--url: {why}"))?;
    if let Some(file) = bearer {
        let token = std::fs::read_to_string(&file).map_err(|why| format!("{file}: {why}"))?;
        let token = Secret::new(token.trim().to_owned());
        let with = endpoint.with_bearer(&token);
        endpoint = with.map_err(|why| format!("{file}: {why}"))?;
    }
    Ok(Some(Asked {
        endpoint,
        form,
        expectations,
    }))
}

pub(super) fn proof() -> Proof {
    proof_of(&endpoint_kit())
}
