//! Addresses of a pod in little memory.

use std::net::IpAddr;

/// Addresses of a pod. Nearly every pod has one or two, and 50,000 short lists on the heap would take more memory than these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Addresses {
    Few([Option<IpAddr>; 2]),
    Many(Box<[IpAddr]>),
}

impl Addresses {
    pub(crate) fn new(list: Vec<IpAddr>) -> Self {
        match list[..] {
            [] => Addresses::Few([None, None]),
            [one] => Addresses::Few([Some(one), None]),
            [one, two] => Addresses::Few([Some(one), Some(two)]),
            _ => Addresses::Many(list.into()),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = IpAddr> {
        let (few, many): (&[Option<IpAddr>], &[IpAddr]) = match self {
            Addresses::Few(few) => (few, &[]),
            Addresses::Many(many) => (&[], many),
        };
        few.iter().copied().flatten().chain(many.iter().copied())
    }
}
