//! Converts one item of `-o json` or `-o jsonl` to an entry.
//!
//! Every field is read separately, so that an error names it, and then they are combined. Nothing is guessed: required
//! fields must be present, words known, numbers in range. Any other missing key is null.
//!
//! Fields that are derived (`nat`, `hairpin`) or were known at that time only (names, verdict) are ignored. JSON does not
//! hold window scales, the role of DCCP, sequence adjustments, the master of an expected entry and status bits without a
//! name, so these are absent.

use std::fmt::Display;
use std::net::IpAddr;
use std::time::UNIX_EPOCH;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::Value;

use crate::output::state_byte;
use ctnetlink::flow::{
    Counters, Direction, Family, Flow, L4, ProtocolState, Status, TcpDirection, Tuple, Zone,
    dccp_state_name, protocol_number, sctp_state_name, tcp_state_name,
};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const GRE: u8 = 47;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

/// Error in one field of an item.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct FieldError {
    /// Dotted name: `timeout`, `original.sport`.
    pub field: String,
    pub message: String,
}

impl FieldError {
    fn new(field: impl Display, message: impl Display) -> Self {
        FieldError {
            field: field.to_string(),
            message: message.to_string(),
        }
    }
}

/// Fields of an item that define the entry.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SavedItem {
    family: JsonField<String>,
    protocol: JsonField<String>,
    protocol_number: JsonField<u8>,
    zone: JsonField<u16>,
    zone_direction: JsonField<String>,
    id: JsonField<u32>,
    original: JsonField<TupleItem>,
    reply: JsonField<TupleItem>,
    status: JsonField<Vec<String>>,
    state: JsonField<String>,
    tcp_flags: JsonField<TcpFlags>,
    timeout: JsonField<u32>,
    mark: JsonField<u32>,
    labels: JsonField<String>,
    helper: JsonField<Box<str>>,
    secctx: JsonField<Box<str>>,
    #[serde(rename = "use")]
    use_count: JsonField<u32>,
    start: JsonField<String>,
    result: JsonField<String>,
    schema: JsonField<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TupleItem {
    src: JsonField<IpAddr>,
    dst: JsonField<IpAddr>,
    sport: JsonField<u16>,
    dport: JsonField<u16>,
    #[serde(rename = "type")]
    kind: JsonField<u8>,
    code: JsonField<u8>,
    icmp_id: JsonField<u16>,
    srckey: JsonField<u16>,
    dstkey: JsonField<u16>,
    vtag: JsonField<u32>,
    packets: JsonField<u64>,
    bytes: JsonField<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TcpFlags {
    original: JsonField<u8>,
    reply: JsonField<u8>,
}

/// A field of an item. A wrong value does not end the reading of the item, because the name of the field is not known until
/// the field is used.
#[derive(Default)]
enum JsonField<T> {
    /// Null or missing.
    #[default]
    Absent,
    Is(T),
    Wrong(String),
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for JsonField<T> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        Ok(match Value::deserialize(json)? {
            Value::Null => JsonField::Absent,
            value => match T::deserialize(value) {
                Ok(value) => JsonField::Is(value),
                Err(error) => JsonField::Wrong(error.to_string()),
            },
        })
    }
}

impl<T> JsonField<T> {
    fn optional(self, name: impl Display) -> Result<Option<T>, FieldError> {
        match self {
            JsonField::Absent => Ok(None),
            JsonField::Is(value) => Ok(Some(value)),
            JsonField::Wrong(message) => Err(FieldError::new(name, message)),
        }
    }

    fn required(self, name: impl Display + Copy) -> Result<T, FieldError> {
        self.optional(name)?
            .ok_or_else(|| FieldError::new(name, "is missing"))
    }
}

impl SavedItem {
    /// The entry, and the value of `result` if present.
    ///
    /// # Errors
    /// [`FieldError`] for the first wrong field.
    pub fn into_flow(self) -> Result<(Flow, Option<String>), FieldError> {
        if let Some(schema) = self.schema.optional("schema")? {
            let message = format!("an item has none: {schema} is that of another line");
            return Err(FieldError::new("schema", message));
        }
        let protocol = self.protocol_number.required("protocol_number")?;
        same_protocol(protocol, self.protocol.optional("protocol")?.as_deref())?;
        let original = self
            .original
            .required("original")?
            .read("original", protocol)?;
        let reply = self.reply.required("reply")?.read("reply", protocol)?;
        same_family(
            self.family.optional("family")?.as_deref(),
            &original.tuple,
            &reply.tuple,
        )?;
        let tags = (original.vtag, reply.vtag);
        let flags = self.tcp_flags.optional("tcp_flags")?;
        let word = self.state.optional("state")?;

        let mut flow = Flow::new(original.tuple, reply.tuple);
        flow.counters_original = original.counters;
        flow.counters_reply = reply.counters;
        flow.state = state(protocol, word.as_deref(), flags, tags)?;
        flow.status = status(&self.status.required("status")?)?;
        flow.zone = Zone {
            id: self.zone.required("zone")?,
            direction: direction(self.zone_direction.optional("zone_direction")?.as_deref())?,
        };
        flow.id = self.id.optional("id")?;
        flow.timeout = self.timeout.optional("timeout")?;
        flow.mark = self.mark.optional("mark")?;
        flow.use_count = self.use_count.optional("use")?;
        if let Some(text) = self.start.optional("start")? {
            flow.start = Some(time(&text)?);
        }
        if let Some(text) = self.labels.optional("labels")? {
            flow.rare_mut().labels = Some(labels(&text)?);
        }
        if let Some(helper) = self.helper.optional("helper")? {
            flow.rare_mut().helper = Some(helper);
        }
        if let Some(secctx) = self.secctx.optional("secctx")? {
            flow.rare_mut().secctx = Some(secctx);
        }
        Ok((flow, self.result.optional("result")?))
    }
}

/// One direction of an item.
struct Side {
    tuple: Tuple,
    vtag: Option<u32>,
    counters: Option<Counters>,
}

impl TupleItem {
    fn read(self, side: &'static str, protocol: u8) -> Result<Side, FieldError> {
        let name = |field| SideField { side, field };
        let ports = pair(side, ("sport", self.sport), ("dport", self.dport))?;
        let keys = pair(side, ("srckey", self.srckey), ("dstkey", self.dstkey))?;
        let icmp = (
            self.kind.optional(name("type"))?,
            self.code.optional(name("code"))?,
            self.icmp_id.optional(name("icmp_id"))?,
        );
        let icmp = match icmp {
            (None, None, None) => None,
            (Some(kind), Some(code), Some(id)) => Some(L4::Icmp { kind, code, id }),
            (None, ..) => return Err(FieldError::new(name("type"), "is missing")),
            (_, None, _) => return Err(FieldError::new(name("code"), "is missing")),
            _ => return Err(FieldError::new(name("icmp_id"), "is missing")),
        };
        let fields = ProtocolFields { ports, icmp, keys };
        let counted = pair(side, ("packets", self.packets), ("bytes", self.bytes))?;
        Ok(Side {
            tuple: Tuple {
                src: self.src.required(name("src"))?,
                dst: self.dst.required(name("dst"))?,
                protocol,
                l4: fields.l4(side, protocol)?,
            },
            vtag: self.vtag.optional(name("vtag"))?,
            counters: counted.map(|(packets, bytes)| Counters { packets, bytes }),
        })
    }
}

/// Name of a field of one direction: `original.sport`.
#[derive(Clone, Copy)]
struct SideField {
    side: &'static str,
    field: &'static str,
}

impl Display for SideField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.side, self.field)
    }
}

/// Two fields of which both or none must be present.
fn pair<T>(
    side: &'static str,
    (first, a): (&'static str, JsonField<T>),
    (second, b): (&'static str, JsonField<T>),
) -> Result<Option<(T, T)>, FieldError> {
    let (first, second) = (
        SideField { side, field: first },
        SideField {
            side,
            field: second,
        },
    );
    match (a.optional(first)?, b.optional(second)?) {
        (None, None) => Ok(None),
        (Some(a), Some(b)) => Ok(Some((a, b))),
        (None, _) => Err(FieldError::new(first, "is missing")),
        (_, None) => Err(FieldError::new(second, "is missing")),
    }
}

/// Fields of a tuple that depend on the protocol.
struct ProtocolFields {
    ports: Option<(u16, u16)>,
    icmp: Option<L4>,
    keys: Option<(u16, u16)>,
}

impl ProtocolFields {
    /// Checks that the protocol has these fields, as the kernel's trackers send them. Kernels without a tracker for SCTP,
    /// DCCP, UDP-Lite or GRE send no fields for these protocols.
    fn l4(self, side: &'static str, protocol: u8) -> Result<L4, FieldError> {
        let missing = |field| Err(FieldError::new(SideField { side, field }, "is missing"));
        let unexpected = |field| {
            let message = format!("protocol {protocol} has none");
            Err(FieldError::new(SideField { side, field }, message))
        };
        match (protocol, self.ports, self.icmp, self.keys) {
            (ICMP | ICMPV6, None, Some(icmp), None) => Ok(icmp),
            (ICMP | ICMPV6, None, None, None) => missing("type"),
            (TCP | UDP, None, None, None) => missing("sport"),
            (GRE, None, None, Some((src, dst))) => Ok(L4::Gre { src, dst }),
            (_, None, None, None) => Ok(L4::None),
            (ICMP | ICMPV6 | GRE, Some(_), ..) => unexpected("sport"),
            (_, _, Some(_), _) => unexpected("type"),
            (_, _, _, Some(_)) => unexpected("srckey"),
            (_, Some((src, dst)), None, None) => Ok(L4::Ports { src, dst }),
        }
    }
}

/// Checks that a known protocol name has this number. The entry is defined by the number alone.
fn same_protocol(number: u8, name: Option<&str>) -> Result<(), FieldError> {
    match name.and_then(protocol_number) {
        Some(other) if other != number => Err(FieldError::new(
            "protocol",
            format!("is {other} by name, but protocol_number says {number}"),
        )),
        _ => Ok(()),
    }
}

fn same_family(named: Option<&str>, original: &Tuple, reply: &Tuple) -> Result<(), FieldError> {
    let family = original.family();
    let addresses = [
        ("original.dst", original.dst),
        ("reply.src", reply.src),
        ("reply.dst", reply.dst),
    ];
    for (field, address) in addresses {
        if Family::of(address) != family {
            return Err(FieldError::new(
                field,
                format!("{address} is not of the family of original.src"),
            ));
        }
    }
    match named {
        Some(named) if named != family.name() => Err(FieldError::new(
            "family",
            format!("is {named:?}, but the addresses are {}", family.name()),
        )),
        _ => Ok(()),
    }
}

fn state(
    protocol: u8,
    word: Option<&str>,
    flags: Option<TcpFlags>,
    (vtag_original, vtag_reply): (Option<u32>, Option<u32>),
) -> Result<Option<ProtocolState>, FieldError> {
    let side = |flags| TcpDirection {
        flags,
        window_scale: None,
    };
    let (original, reply) = match flags {
        None => (None, None),
        Some(flags) => (
            flags.original.optional("tcp_flags.original")?,
            flags.reply.optional("tcp_flags.reply")?,
        ),
    };
    // Both are printed only with a state of their protocol.
    if (original.is_some() || reply.is_some()) && (protocol, word.is_some()) != (TCP, true) {
        return Err(FieldError::new("tcp_flags", "without a TCP state"));
    }
    if (vtag_original.is_some() || vtag_reply.is_some())
        && (protocol, word.is_some()) != (SCTP, true)
    {
        return Err(FieldError::new("vtag", "without an SCTP state"));
    }
    let Some(word) = word else {
        return Ok(None);
    };
    Ok(Some(match protocol {
        TCP => ProtocolState::Tcp {
            state: state_number(word, tcp_state_name)?,
            original: side(original),
            reply: side(reply),
        },
        SCTP => ProtocolState::Sctp {
            state: state_number(word, sctp_state_name)?,
            vtag_original,
            vtag_reply,
        },
        DCCP => ProtocolState::Dccp {
            state: state_number(word, dccp_state_name)?,
            role: None,
        },
        _ => {
            return Err(FieldError::new(
                "state",
                format!("protocol {protocol} has none"),
            ));
        }
    }))
}

/// Number of `time-wait`, or of `STATE(42)` for a number without a word.
fn state_number(word: &str, name: fn(u8) -> Option<&'static str>) -> Result<u8, FieldError> {
    let nameless = word
        .strip_prefix("STATE(")
        .and_then(|rest| rest.strip_suffix(')'));
    let number = match nameless {
        Some(number) => number.parse().ok(),
        None => (0..=u8::MAX)
            .find(|number| name(*number).is_some_and(|name| is_spelling_of(name, word))),
    };
    number.ok_or_else(|| FieldError::new("state", format!("unknown word {word:?}")))
}

/// Whether `word` is the spelling that this program prints for the kernel's `name`.
fn is_spelling_of(name: &str, word: &str) -> bool {
    name.bytes().map(state_byte).eq(word.bytes())
}

fn status(words: &[String]) -> Result<Status, FieldError> {
    words.iter().try_fold(Status::default(), |all, word| {
        let known = Status::NAMES.into_iter().find(|(name, _)| name == word);
        known
            .map(|(_, bit)| all.with(bit))
            .ok_or_else(|| FieldError::new("status", format!("unknown word {word:?}")))
    })
}

fn direction(word: Option<&str>) -> Result<Option<Direction>, FieldError> {
    match word {
        None => Ok(None),
        Some("original") => Ok(Some(Direction::Original)),
        Some("reply") => Ok(Some(Direction::Reply)),
        Some(other) => Err(FieldError::new(
            "zone_direction",
            format!("unknown word {other:?}"),
        )),
    }
}

/// Parses `0x` and 32 hex digits; label N is bit N.
fn labels(text: &str) -> Result<[u8; 16], FieldError> {
    let digits = text
        .strip_prefix("0x")
        .filter(|digits| digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit()));
    digits
        .and_then(|digits| u128::from_str_radix(digits, 16).ok())
        .map(u128::to_le_bytes)
        .ok_or_else(|| FieldError::new("labels", format!("{text:?} is not 0x and 32 hex digits")))
}

/// Parses RFC 3339 in UTC to nanoseconds since the Unix epoch.
fn time(text: &str) -> Result<u64, FieldError> {
    let wrong = |error: &dyn Display| FieldError::new("start", format!("{text:?}: {error}"));
    let time = humantime::parse_rfc3339(text).map_err(|error| wrong(&error))?;
    time.duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| u64::try_from(since.as_nanos()).ok())
        .ok_or_else(|| wrong(&"is before 1970 or after 2554"))
}
