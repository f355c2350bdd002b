//! Integration tests.

#[cfg(all(
    feature = "hub",
    feature = "osw",
    feature = "sacp",
    feature = "sap",
    feature = "uap"
))]
mod levels;
mod toy;
