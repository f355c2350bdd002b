//! Pipes that are full, whatever room the system gives them.

use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};

use rustix::fs::{OFlags, fcntl_setfl};

const PAGE: usize = 4096;

/// A pipe that takes not one byte more before somebody reads: what fills it are blanks.
pub(crate) fn full() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    for bytes in [PAGE, 1] {
        while writer.write(&vec![b' '; bytes]).is_ok() {}
    }
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer)
}

/// A pipe that takes some bytes, and no more before somebody reads.
pub(crate) fn nearly_full(room: usize) -> (PipeReader, PipeWriter) {
    let (mut reader, mut writer) = full();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(&vec![b' '; PAGE - room]).is_err() {
        reader.read_exact(&mut [0; PAGE]).unwrap();
    }
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer)
}
