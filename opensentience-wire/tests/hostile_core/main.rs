//! Cores that mean harm, one at a time, each against an agent in a process of its own. What the agent grows by, its threads, and
//! how long it takes to end once the core is gone are printed; the growth, the threads and the end are asserted, and that each
//! attack came through: the bytes and frames that the agent took, and its answers. `OSW_HOSTILE_CORE_WRITE=1` has the table be
//! written to `TABLE.md`; a run holds its rows to the list of attacks.
//!
//! The program is its own agent: it is launched again with [`agent::ROLE`] set.

#![expect(clippy::print_stdout, reason = "the table is the result")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test ends with what goes wrong"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "the test measures time and starts tasks"
)]

#[cfg(target_os = "linux")]
mod agent;
#[cfg(target_os = "linux")]
mod attacks;
#[cfg(target_os = "linux")]
mod hostile;

#[cfg(target_os = "linux")]
fn main() {
    if std::env::var_os(agent::ROLE).is_some() {
        return agent::run();
    }
    // `cargo test -- --list` and filters that name another test run none of it.
    let wanted = |argument: String| argument == "--list" || !argument.starts_with('-');
    if std::env::args().skip(1).any(wanted) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(attacks::all());
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("what a process holds is read on Linux alone");
}
