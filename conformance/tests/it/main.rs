//! Integration tests.

mod toy;
