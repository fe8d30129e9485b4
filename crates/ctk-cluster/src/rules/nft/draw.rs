//! Random choices of kube-proxy: `numgen random mod N` picks an element of an anonymous map, which is a verdict (`vmap`, one
//! chain for each endpoint) or an endpoint itself (`dnat to numgen ... map`, since kube-proxy 1.36).

use std::net::SocketAddr;

use serde_json::Value;

use super::{NftTable, pairs, port};

/// Largest modulus that the kernel accepts (`NFTA_NG_MODULUS` has 32 bits).
const MAX_MODULUS: u64 = u32::MAX as u64;

/// A random number, and the targets of its values.
pub(super) struct Draw {
    /// Modulus: 1 to [`MAX_MODULUS`].
    modulus: u64,
    /// Number of values for each target: a verdict, or an endpoint that [`place`] decodes.
    elements: Vec<(u64, Value)>,
}

impl Draw {
    /// Each element with its chance, 0 to 1.
    pub(super) fn chances(&self) -> impl Iterator<Item = (f64, &Value)> {
        let elements = self.elements.iter();
        elements.map(|(count, to)| (self.part(*count), to))
    }

    /// Chance that the number has a target, 0 to 1.
    pub(super) fn total(&self) -> f64 {
        self.part(self.elements.iter().map(|(count, _)| count).sum())
    }

    fn part(&self, count: u64) -> f64 {
        count as f64 / self.modulus as f64
    }
}

/// Decodes `{"key": {"numgen": ...}, "data": ...}`. `None` where the key is no random number, or an element exceeds its range.
pub(super) fn draw(table: &NftTable<'_>, body: &Value) -> Option<Draw> {
    let number = body.get("key")?.get("numgen")?;
    let modulus = number.get("mod")?.as_u64()?;
    let first = number.get("offset").and_then(Value::as_u64).unwrap_or(0);
    let end = first.checked_add(modulus)?;
    if !(1..=MAX_MODULUS).contains(&modulus) {
        return None;
    }
    let mut taken = 0;
    let mut elements = Vec::new();
    for (key, to) in pairs(table, body.get("data")?)? {
        let (from, last) = numbers(&key)?;
        if from < first || last < from || last >= end {
            return None;
        }
        let count = last - from + 1;
        taken += count;
        elements.push((count, to));
    }
    (taken <= modulus).then_some(Draw { modulus, elements })
}

/// First and last number of an element: one number, or a range.
fn numbers(key: &Value) -> Option<(u64, u64)> {
    match key.get("range") {
        Some(range) => match range.as_array()?.as_slice() {
            [from, to] => Some((from.as_u64()?, to.as_u64()?)),
            _ => None,
        },
        None => key.as_u64().map(|number| (number, number)),
    }
}

/// Target of a `dnat`.
pub(super) enum Translation<'v> {
    /// `dnat to 10.244.1.7:53`
    One(SocketAddr),
    /// `dnat ip addr . port to numgen random mod 2 map { 0 : 10.244.1.7 . 53, ... }`: the map with its key.
    Drawn(&'v Value),
}

impl<'v> Translation<'v> {
    /// `None` for a shape that is not understood.
    pub(super) fn of(dnat: &'v Value) -> Option<Self> {
        let address = dnat.get("addr")?;
        match (address.as_str(), dnat.get("port")) {
            (Some(text), Some(number)) => {
                let address = text.parse().ok()?;
                Some(Translation::One(SocketAddr::new(address, port(number)?)))
            }
            // The elements of the map include the port.
            (None, None) => address.get("map").map(Translation::Drawn),
            _ => None,
        }
    }

    /// Every endpoint that it can lead to. `None` where an element is no endpoint.
    pub(super) fn endpoints(&self, table: &NftTable<'_>) -> Option<Vec<SocketAddr>> {
        match self {
            Translation::One(endpoint) => Some(vec![*endpoint]),
            Translation::Drawn(map) => {
                let draw = draw(table, map)?;
                draw.elements.iter().map(|(_, to)| place(to)).collect()
            }
        }
    }
}

/// `10.244.1.7 . 53`
pub(super) fn place(value: &Value) -> Option<SocketAddr> {
    let [address, number] = value.get("concat")?.as_array()?.as_slice() else {
        return None;
    };
    let address = address.as_str()?.parse().ok()?;
    Some(SocketAddr::new(address, port(number)?))
}
