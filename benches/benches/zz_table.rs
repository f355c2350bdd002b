//! Prints the figures of all benches as one Markdown table. Its name puts it behind the others.

#![expect(clippy::print_stdout, reason = "its result")]

fn main() {
    // `cargo test` runs benches once, to see that they run.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    match benches::table() {
        Ok(table) => println!("\n{table}"),
        Err(error) => println!("no table: {error}"),
    }
}
