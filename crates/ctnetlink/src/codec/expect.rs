//! Expectations: flows that a helper (FTP, SIP, ...) announced and that have not come yet.

use super::abi::expect;
use super::attr::Attributes;
use super::decode::{DecodeError, NFGENMSG};
use super::tuple::tuple;
use crate::flow::Tuple;

/// One expectation (`struct nf_conntrack_expect`). What the kernel did not say is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// What the expected flow's first packet looks like, where the mask has ones.
    pub tuple: Tuple,
    pub mask: Option<Tuple>,
    /// Original tuple of the entry whose helper expects it.
    pub master: Tuple,
    /// Seconds until it is forgotten.
    pub timeout: Option<u32>,
    pub id: Option<u32>,
    /// Kernels up to 6.18 take a zone and never tell it.
    pub zone: Option<u16>,
    pub helper: Option<Box<str>>,
    /// The helper's own class number.
    pub class: Option<u32>,
    /// `NF_CT_EXPECT_*`: 1 permanent, 2 inactive, 4 made by user space.
    pub flags: Option<u32>,
    /// Name of the function that runs when it comes true, where it has one.
    pub function: Option<Box<str>>,
}

/// An expectation from what follows the netlink header of a `NFNL_SUBSYS_CTNETLINK_EXP` message.
///
/// # Errors
/// See [`DecodeError`].
pub fn expectation(message: &[u8]) -> Result<Expectation, DecodeError> {
    let bytes = message.get(NFGENMSG..).ok_or(DecodeError::Short)?;
    let (mut own, mut mask, mut master) = (None, None, None);
    let (mut timeout, mut id, mut zone, mut class, mut flags) = (None, None, None, None, None);
    let (mut helper, mut function) = (None, None);
    let mut attributes = Attributes::new(bytes);
    for attribute in &mut attributes {
        match attribute.kind {
            expect::TUPLE => own = tuple(attribute)?.0,
            expect::MASK => mask = tuple(attribute)?.0,
            expect::MASTER => master = tuple(attribute)?.0,
            expect::TIMEOUT => timeout = attribute.be32(),
            expect::ID => id = attribute.be32(),
            expect::ZONE => zone = attribute.be16(),
            expect::CLASS => class = attribute.be32(),
            expect::FLAGS => flags = attribute.be32(),
            expect::HELP_NAME => helper = Some(attribute.text()),
            expect::FN => function = Some(attribute.text()),
            _ => {}
        }
    }
    attributes.finish()?;
    Ok(Expectation {
        tuple: own.ok_or(DecodeError::NoExpectedTuple)?,
        mask,
        master: master.ok_or(DecodeError::NoExpectedTuple)?,
        timeout,
        id,
        zone,
        helper,
        class,
        flags,
        function,
    })
}
