//! Shorthand of the test kit, for the unit tests here and for `tests/`.

#[allow(unused_imports)] // each test file uses its part
pub(crate) use testkit::shorthand::{API, list, object};
