//! What both machines have in common as machines.

/// Gives a role the methods of a machine, and the trait that forwards to them. The role has `on_input`, `on_due`, and the
/// fields `phase`, `outputs` and `timers`.
macro_rules! impl_machine {
    ($machine:ident, $input:ty, $input_of_a:ty, $(#[$doc:meta])*) => {
        impl $machine {
            $(#[$doc])*
            pub fn handle_input(&mut self, now: Now, input: $input) -> Result<(), InputError> {
                self.on_input(now, input)
            }

            /// Does what is due; early or repeated calls do nothing.
            pub fn handle_timeout(&mut self, now: Now) {
                self.on_due(now);
            }

            /// The next output; `None` when there is none.
            pub fn poll_output(&mut self) -> Option<Output> {
                self.outputs.pop()
            }

            /// When [`handle_timeout`](Self::handle_timeout) is due next.
            #[must_use]
            pub fn poll_timeout(&self) -> Option<Mono> {
                self.timers.next()
            }

            /// Whether the driver may go on reading; false while more outputs wait than the machine holds, and at the end.
            #[must_use]
            pub fn accepts_input(&self) -> bool {
                !self.is_closed() && !self.outputs.is_full()
            }

            /// Whether the machine has shut down.
            #[must_use]
            pub fn is_closed(&self) -> bool {
                self.phase == Phase::Closed
            }
        }

        ubos_common::forward_machine! { [] $machine: $input_of_a => Output, InputError }
    };
}

pub(super) use impl_machine;
