//! The machine trait for types whose own methods are the machine.

/// Forwards each method of the trait to the method of the same name.
macro_rules! forwarded {
    ([$($generics:tt)*] $machine:ty: $input:ty => $output:ty, $error:ty) => {
        impl<$($generics)*> ::ubos_common::machine::Machine for $machine {
            type Input<'a> = $input;
            type Output = $output;
            type Error = $error;

            fn handle_input(&mut self, now: Now, input: $input) -> Result<(), $error> {
                Self::handle_input(self, now, input)
            }

            fn handle_timeout(&mut self, now: Now) {
                Self::handle_timeout(self, now);
            }

            fn poll_output(&mut self) -> Option<$output> {
                Self::poll_output(self)
            }

            fn poll_timeout(&self) -> Option<Mono> {
                Self::poll_timeout(self)
            }

            fn accepts_input(&self) -> bool {
                Self::accepts_input(self)
            }

            fn is_closed(&self) -> bool {
                Self::is_closed(self)
            }
        }
    };
}

pub(crate) use forwarded;
