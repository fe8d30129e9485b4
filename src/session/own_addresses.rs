//! Addresses of this host's interfaces as a selector.

use std::sync::Arc;

use ctnetlink::netns::Netns;
use ctnetlink::rtnetlink;

use crate::error::CommandError;
use crate::filter::EntryTest;
use crate::query::EntryQuery;

/// Selects entries whose translated source no interface of the namespace has now.
///
/// # Errors
/// The addresses cannot be read.
pub fn select_lost_sources(entries: &mut EntryQuery, netns: &Netns) -> Result<(), CommandError> {
    let local = rtnetlink::local_addresses(netns)
        .map_err(|error| CommandError::failed("--lost-source").with_source(error))?;
    let own = local.iter().map(|own| own.address()).collect();
    entries
        .filter
        .push("--lost-source", EntryTest::LostSource(Arc::new(own)));
    Ok(())
}
