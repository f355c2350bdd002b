//! Criterion benches: ours and the yardstick in one process, quoted as ratios.
//!
//! A bench [`report`]s each figure with its [`Bar`]. The last bench, `zz_table`, prints the figures of all benches as one
//! Markdown table and says which bars are missed.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Once;

use ubos_common::os::Clock;

/// What a figure has to keep to.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "all that a bar can be")]
pub enum Bar {
    /// At most so much.
    AtMost(f64),
    /// At least so much.
    AtLeast(f64),
    /// Nothing: the figure is reported.
    None,
}

impl Bar {
    /// Whether a figure keeps to it, to the two digits that are printed.
    #[must_use]
    pub fn holds(self, figure: f64) -> bool {
        const HALF_A_DIGIT: f64 = 0.005;
        match self {
            Self::AtMost(most) => figure < most + HALF_A_DIGIT,
            Self::AtLeast(least) => figure >= least - HALF_A_DIGIT,
            Self::None => true,
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "at most {most}"),
            Self::AtLeast(least) => write!(f, "at least {least}"),
            Self::None => f.write_str("–"),
        }
    }
}

/// Prints a figure with its bar, and keeps it for the table. `what` says what is set against what.
#[expect(clippy::print_stdout, reason = "the summary of a bench")]
pub fn report(what: &str, figure: f64, bar: Bar) {
    let verdict = if bar.holds(figure) { "" } else { ", MISSED" };
    println!("{what}: {figure:.2} ({bar}{verdict})");
    let verdict = match bar {
        Bar::None => "",
        bar if bar.holds(figure) => "met",
        _ => "**missed**",
    };
    let at = Clock::default().now().wall.truncated_to_second();
    let busy = busy();
    let row = format!("| {what} | {figure:.2} | {bar} | {verdict} | {busy} | {at} |\n");
    if let Err(error) = keep(&row) {
        println!("  (not kept for the table: {error})");
    }
}

/// Adds a row to those of this program; what an earlier run of it kept is gone.
fn keep(row: &str) -> io::Result<()> {
    static FIRST: Once = Once::new();
    let (folder, name) = rows()?;
    fs::create_dir_all(&folder)?;
    let file = folder.join(name);
    FIRST.call_once(|| drop(fs::remove_file(&file)));
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(row.as_bytes())
}

/// The folder of all rows, beside the programs, and the name of this one's: that of the bench.
fn rows() -> io::Result<(PathBuf, String)> {
    let program = std::env::current_exe()?;
    let folder = program.parent().unwrap_or(&program).join("ratios");
    let name = program.file_stem().unwrap_or_default().to_string_lossy();
    let bench = name.rsplit_once('-').map_or(&*name, |(bench, _)| bench);
    Ok((folder, bench.to_owned()))
}

/// Processes that wanted to run during the last minute, over the processors.
fn busy() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let wanted = load.split(' ').next().unwrap_or("?").to_owned();
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{wanted} of {processors}")
}

/// The figures of all benches that have run, as a Markdown table, and how many bars are missed of how many.
///
/// # Errors
///
/// They cannot be read.
pub fn table() -> io::Result<String> {
    let (folder, _) = rows()?;
    let mut files: Vec<PathBuf> = match fs::read_dir(&folder) {
        Ok(files) => files
            .map(|file| Ok(file?.path()))
            .collect::<io::Result<_>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    files.sort();
    let mut table = String::from(
        "| bench | what | figure | bar | | processes that want to run, of processors | measured |\n|---|---|---|---|---|---|---|\n",
    );
    let (mut bars, mut missed) = (0, 0);
    for file in files {
        let bench = file.file_name().unwrap_or_default().to_string_lossy();
        for row in fs::read_to_string(&file)?.lines() {
            bars += usize::from(!row.contains("| – |"));
            missed += usize::from(row.contains("| **missed** |"));
            table.push_str(&format!("| `{bench}` {row}\n"));
        }
    }
    table.push_str(&format!("\n{missed} of {bars} bars are missed.\n"));
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_holds_to_the_digits_that_are_printed() {
        for (bar, figure, holds) in [
            (Bar::AtMost(1.5), 1.5, true),
            (Bar::AtMost(1.5), 1.504, true),
            (Bar::AtMost(1.5), 1.506, false),
            (Bar::AtLeast(5.0), 4.996, true),
            (Bar::AtLeast(5.0), 4.99, false),
            (Bar::AtMost(1.0), f64::NAN, false),
            (Bar::None, 7.0, true),
        ] {
            assert_eq!(bar.holds(figure), holds, "{bar} {figure}");
        }
    }

    #[test]
    fn the_table_has_every_figure_and_counts_what_is_missed() {
        report("ours / theirs", 0.7, Bar::AtMost(0.75));
        report("theirs / ours", 4.2, Bar::AtLeast(5.0));
        report("memory", 1.19, Bar::None);
        let table = table().unwrap();
        let (folder, name) = rows().unwrap();
        fs::remove_file(folder.join(name)).unwrap();
        for wanted in [
            "| ours / theirs | 0.70 | at most 0.75 | met |",
            "| theirs / ours | 4.20 | at least 5 | **missed** |",
            "| memory | 1.19 | – |  |",
            " of ",
        ] {
            assert!(table.contains(wanted), "{wanted}: {table}");
        }
    }
}
