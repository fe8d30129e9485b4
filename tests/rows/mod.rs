//! Module `rows` of the test kit.
#![allow(unused_imports)] // each test file uses its part

pub use testkit::rows::*;
