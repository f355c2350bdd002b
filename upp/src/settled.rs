//! A member that counts as present although its value was refused.

use ubos_common::json::{Fault, Read, Reader, Write};

/// The value of a member; `None` where it was refused, so that it is not reported as absent, too.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settled<T>(pub(crate) Option<T>);

impl<'a, T: Read<'a>> Read<'a> for Settled<T> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let mark = reader.mark();
        let value = T::read(reader);
        reader.settle(mark, value).map(Self)
    }
}

impl<T: Write> Write for Settled<T> {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}
