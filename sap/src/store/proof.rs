//! The proof of a log in files.

use ubos_common::log::{Head as LogHead, Log, LogDir, ReadError, Verify};

use crate::transcript::{Head, Proof, TranscriptError, Verdict};

/// Proves the whole chain, and that it once ended with `kept`.
pub(super) fn prove(
    dir: &dyn LogDir,
    log: &Log,
    kept: Option<&Head>,
) -> Result<Proof, TranscriptError> {
    let mut verify = Verify::default();
    if let Some(kept) = kept {
        let kept: LogHead = kept.as_ref().parse().map_err(|_| TranscriptError::Head)?;
        verify = verify.kept(kept);
    }
    match verify.run(dir) {
        Ok(proven) => Ok(Proof {
            records: proven.records,
            head: Head::from(proven.head.to_string()),
            verdict: Verdict::Intact,
        }),
        Err(ReadError::Damaged(damage)) => {
            let head = log.head();
            Ok(Proof {
                records: head.next_sequence,
                head: Head::from(head.to_string()),
                verdict: Verdict::Broken {
                    record: damage.fault.sequence(),
                    what: damage.to_string(),
                },
            })
        }
        Err(other) => Err(TranscriptError::Store(Box::new(other))),
    }
}
