//! Tests of the whole workspace.

mod corpus;
mod registers;
