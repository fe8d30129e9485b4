//! Values of columns: their text in CSV and in tables, and their order.

use std::cmp::Ordering;
use std::fmt::{Display, Write};
use std::net::IpAddr;

use ctnetlink::flow::{ProtocolState, Status};

use super::row::Row;
use super::{cell, escape, write};

/// Value of a column for one entry. An absent value is [`ColumnValue::None`], never zero.
#[derive(Clone, Copy)]
pub(super) enum ColumnValue<'a> {
    None,
    Number(u64),
    /// Seconds; `1m58s` in tables.
    Seconds(u32),
    /// Nanoseconds since the Unix epoch.
    Time(u64),
    Bool(bool),
    /// A word of this program.
    Word(&'static str),
    /// Untrusted text.
    Text(&'a str),
    Address(IpAddr),
    Protocol(u8),
    Status(Status),
    State(ProtocolState),
    Labels(&'a [u8; 16]),
    Evidence(&'a dyn Display),
    Client(Row<'a>),
    Service(Row<'a>),
    Endpoint(Row<'a>),
}

impl ColumnValue<'_> {
    /// Appends the text of CSV; nothing for an absent value.
    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            ColumnValue::None => {}
            ColumnValue::Number(n) => write::number(out, n),
            ColumnValue::Seconds(n) => write::number(out, n),
            ColumnValue::Time(t) => write::time(out, t),
            ColumnValue::Bool(b) => out.extend_from_slice(if b { b"true" } else { b"false" }),
            ColumnValue::Word(word) => out.extend_from_slice(word.as_bytes()),
            ColumnValue::Text(text) => escape::text(out, text),
            ColumnValue::Address(ip) => write::address(out, ip),
            ColumnValue::Protocol(p) => write::protocol(out, p),
            ColumnValue::Status(status) => write::status(out, status),
            ColumnValue::State(state) => write::state(out, state),
            ColumnValue::Labels(labels) => write::labels(out, labels),
            ColumnValue::Evidence(evidence) => {
                // Writing to a buffer cannot fail.
                let _ = write!(escape::EscapedText(out), "{evidence}");
            }
            ColumnValue::Client(row) => {
                if let Some(client) = &row.names.client {
                    cell::qualified(client.namespace, client.name, out);
                }
            }
            ColumnValue::Service(row) => {
                if row
                    .names
                    .service
                    .is_some_and(|service| service.name.is_some())
                {
                    cell::service(&row, out);
                }
            }
            ColumnValue::Endpoint(row) => {
                if let Some(endpoint) = &row.names.endpoint {
                    cell::qualified(endpoint.party.namespace, endpoint.party.name, out);
                }
            }
        }
    }

    /// Appends the text of tables.
    pub fn show(self, out: &mut Vec<u8>) {
        match self {
            ColumnValue::Seconds(n) => write::duration(out, n.into()),
            ColumnValue::Client(row) => cell::client(&row, out),
            ColumnValue::Service(row) => cell::service(&row, out),
            ColumnValue::Endpoint(row) => cell::endpoint(&row, out),
            other => other.write(out),
        }
    }

    pub fn sort_key(self) -> SortKey {
        match self {
            ColumnValue::None => SortKey::Absent,
            ColumnValue::Number(n) | ColumnValue::Time(n) => SortKey::Number(n),
            ColumnValue::Seconds(n) => SortKey::Number(n.into()),
            ColumnValue::Bool(b) => SortKey::Number(b.into()),
            ColumnValue::Status(status) => SortKey::Number(status.0.into()),
            ColumnValue::Word(word) => SortKey::Word(word),
            ColumnValue::Address(ip) => SortKey::Address(ip),
            ColumnValue::Client(row) => self.name_or(row.flow.original.src),
            ColumnValue::Service(row) => self.name_or(row.flow.original.dst),
            ColumnValue::Endpoint(row) => self.name_or(row.flow.reply.src),
            other => SortKey::text(other),
        }
    }

    fn name_or(self, address: IpAddr) -> SortKey {
        match SortKey::text(self) {
            SortKey::Text(name) if name.is_empty() => SortKey::Address(address),
            key => key,
        }
    }
}

/// Key that rows are sorted by: numbers and addresses by value (IPv4 first), text by its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SortKey {
    Number(u64),
    Address(IpAddr),
    Word(&'static str),
    Text(Box<[u8]>),
    Absent,
}

impl SortKey {
    fn text(value: ColumnValue<'_>) -> SortKey {
        let mut text = Vec::new();
        value.write(&mut text);
        SortKey::Text(text.into())
    }

    /// Compares two keys of one column. Absent keys are last in either direction.
    pub fn compare(&self, other: &SortKey, descending: bool) -> Ordering {
        let order = match (self, other) {
            (SortKey::Absent, SortKey::Absent) => return Ordering::Equal,
            (SortKey::Absent, _) => return Ordering::Greater,
            (_, SortKey::Absent) => return Ordering::Less,
            (SortKey::Number(a), SortKey::Number(b)) => a.cmp(b),
            (SortKey::Address(a), SortKey::Address(b)) => a.cmp(b),
            (SortKey::Word(a), SortKey::Word(b)) => a.cmp(b),
            (SortKey::Text(a), SortKey::Text(b)) => a.cmp(b),
            // Names come before bare addresses in columns that have both.
            (a, b) => b.kind().cmp(&a.kind()),
        };
        if descending { order.reverse() } else { order }
    }

    fn kind(&self) -> u8 {
        match self {
            SortKey::Number(_) => 0,
            SortKey::Address(_) => 1,
            SortKey::Word(_) => 2,
            SortKey::Text(_) => 3,
            SortKey::Absent => 4,
        }
    }
}
