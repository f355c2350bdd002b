//! The report's writer.

use super::findings::Findings;
use super::fleet::Check;
use super::output::AgentPart;
use super::screen::Screen;

/// Writes the report.
#[derive(Debug)]
pub struct Writer;

impl Writer {
    /// A writer.
    pub fn new(_: Option<&str>) -> Result<Self, String> {
        Ok(Self)
    }

    /// Writes it.
    pub async fn write(
        &self,
        _: &Findings,
        _: &Check,
        _: &Screen,
    ) -> Result<(String, AgentPart), String> {
        Err("not yet".into())
    }
}
