//! Decoder of expectations.

use super::abi::expect;
use super::attr::Attributes;
use super::decode::{DecodeError, NFGENMSG};
use super::tuple::tuple;
use crate::flow::Tuple;

/// Expectation: a flow that a helper (FTP, SIP, ...) announced and that has not begun (`struct nf_conntrack_expect`). `None`:
/// the message has no such attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expectation {
    /// Tuple of the expected flow's first packet, under the mask (`CTA_EXPECT_TUPLE`).
    pub tuple: Tuple,
    /// Bits of the tuple that are compared (`CTA_EXPECT_MASK`).
    pub mask: Option<Tuple>,
    /// Original tuple of the entry whose helper made the expectation (`CTA_EXPECT_MASTER`).
    pub master: Tuple,
    /// Seconds until the expectation is dropped.
    pub timeout: Option<u32>,
    /// Identifier: a keyed hash (`CTA_EXPECT_ID`, `nf_expect_get_id` in `nf_conntrack_netlink.c`).
    pub id: Option<u32>,
    /// Conntrack zone. Kernels up to 6.18 accept a zone in requests and never send one.
    pub zone: Option<u16>,
    /// Name of the helper.
    pub helper: Option<Box<str>>,
    /// Class number, with a meaning that the helper defines.
    pub class: Option<u32>,
    /// `NF_CT_EXPECT_*` bits: 1 permanent, 2 inactive, 4 made by user space.
    pub flags: Option<u32>,
    /// Name of the function that the kernel calls when the flow begins.
    pub function: Option<Box<str>>,
}

impl Expectation {
    /// Expectation with these tuples, and nothing else known.
    pub fn new(tuple: Tuple, master: Tuple) -> Self {
        Expectation {
            tuple,
            mask: None,
            master,
            timeout: None,
            id: None,
            zone: None,
            helper: None,
            class: None,
            flags: None,
            function: None,
        }
    }
}

/// Decodes the payload of a message of `NFNL_SUBSYS_CTNETLINK_EXP`.
///
/// # Errors
/// [`DecodeError`].
pub(crate) fn expectation(message: &[u8]) -> Result<Expectation, DecodeError> {
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
