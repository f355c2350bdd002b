//! The machine trait for types whose own methods are the machine.

/// Implements [`Machine`](crate::machine::Machine) for a type by its own methods of the same names, so that who uses one
/// machine needs no trait in scope.
///
/// Generics come first, in brackets; an input may borrow as `Input<'a>`.
///
/// ```
/// use ubos_common::machine::Outbox;
/// use ubos_common::time::{Mono, Now};
///
/// struct Echo<T> { out: Outbox<T> }
///
/// impl<T> Echo<T> {
///     pub fn handle_input(&mut self, _: Now, input: T) -> Result<(), std::convert::Infallible> {
///         self.out.push(input);
///         Ok(())
///     }
///     pub fn handle_timeout(&mut self, _: Now) {}
///     pub fn poll_output(&mut self) -> Option<T> { self.out.pop() }
///     pub fn poll_timeout(&self) -> Option<Mono> { None }
///     pub fn accepts_input(&self) -> bool { !self.out.is_full() }
///     pub fn is_closed(&self) -> bool { false }
/// }
///
/// ubos_common::forward_machine! { [T] Echo<T>: T => T, std::convert::Infallible }
/// ```
#[macro_export]
macro_rules! forward_machine {
    ([$($generics:tt)*] $machine:ty: $input:ty => $output:ty, $error:ty) => {
        impl<$($generics)*> $crate::machine::Machine for $machine {
            type Input<'a> = $input;
            type Output = $output;
            type Error = $error;

            fn handle_input(
                &mut self,
                now: $crate::time::Now,
                input: Self::Input<'_>,
            ) -> ::core::result::Result<(), Self::Error> {
                Self::handle_input(self, now, input)
            }

            fn handle_timeout(&mut self, now: $crate::time::Now) {
                Self::handle_timeout(self, now);
            }

            fn poll_output(&mut self) -> ::core::option::Option<Self::Output> {
                Self::poll_output(self)
            }

            fn poll_timeout(&self) -> ::core::option::Option<$crate::time::Mono> {
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
