//! The cases: each begins with kube-proxy in sync and an empty table, see [`crate::lab::Lab::begin`].

mod shapes;

use crate::lab::Lab;

pub struct Case {
    pub name: String,
    pub run: Box<dyn Fn(&mut Lab) + Send>,
}

impl Case {
    fn new(name: impl Into<String>, run: impl Fn(&mut Lab) + Send + 'static) -> Self {
        Case {
            name: name.into(),
            run: Box::new(run),
        }
    }
}

/// Every case, in the order of their running.
pub fn all(seed: u64, worlds: u64) -> Vec<Case> {
    let _ = (seed, worlds);
    vec![Case::new(
        "sources_agree_on_every_service_shape",
        shapes::sources_agree,
    )]
}
