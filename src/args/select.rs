//! Selectors as typed, the same on `ls`, `watch`, `purge` and `top`.
//!
//! Values are parsed while the command line is, so that an impossible one is a usage error that names its flag.

use clap::Args;

use crate::filter::List;
use crate::filter::cidr::Cidr;
use crate::filter::helper::HelperName;
use crate::filter::id::EntryId;
use crate::filter::label::Label;
use crate::filter::mark::Mark;
use crate::filter::number::{Count, Span};
use crate::filter::port::PortRange;
use crate::filter::protocol::{OptionalPorts, Protocol};
use crate::filter::state::StateWord;
use crate::filter::status::StatusWord;
use crate::filter::text::Pattern;
use crate::filter::zone::ZoneId;
use crate::select::name::{Namespace, PartyName, PodName, ReasonWord, ServiceRef, VerdictWord};

const ENTRIES: &str = "Selecting entries";
const CLUSTER: &str = "Cluster names";
const VERDICTS: &str = "Verdicts";

// No doc comment: clap would take it for the help text of the command that flattens this.
#[derive(Args, Clone, Debug, Default)]
pub struct SelectArgs {
    /// TCP, to these destination ports if given (with --udp or another: either)
    #[arg(long, value_name = "PORTS", num_args = 0..=1, default_missing_value = OptionalPorts::NOT_GIVEN, help_heading = ENTRIES)]
    pub tcp: Vec<OptionalPorts>,
    /// UDP, to these destination ports if given: --udp 53
    #[arg(long, value_name = "PORTS", num_args = 0..=1, default_missing_value = OptionalPorts::NOT_GIVEN, help_heading = ENTRIES)]
    pub udp: Vec<OptionalPorts>,
    /// SCTP, to these destination ports if given
    #[arg(long, value_name = "PORTS", num_args = 0..=1, default_missing_value = OptionalPorts::NOT_GIVEN, help_heading = ENTRIES)]
    pub sctp: Vec<OptionalPorts>,
    /// ICMP and ICMPv6
    #[arg(long, help_heading = ENTRIES)]
    pub icmp: bool,
    /// Protocols by name or number
    #[arg(short, long, value_name = "NAME|N", help_heading = ENTRIES)]
    pub proto: Vec<List<Protocol>>,
    /// IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6", help_heading = ENTRIES)]
    pub ipv4: bool,
    /// IPv6 only
    #[arg(short = '6', help_heading = ENTRIES)]
    pub ipv6: bool,
    /// Original source: address or network
    #[arg(long, value_name = "CIDR", help_heading = ENTRIES)]
    pub src: Vec<List<Cidr>>,
    /// Original destination, before translation
    #[arg(long, value_name = "CIDR", help_heading = ENTRIES)]
    pub dst: Vec<List<Cidr>>,
    /// Original source port: 53, 8000-8100, domain
    #[arg(long, value_name = "PORTS", help_heading = ENTRIES)]
    pub sport: Vec<List<PortRange>>,
    /// Original destination port
    #[arg(long, value_name = "PORTS", help_heading = ENTRIES)]
    pub dport: Vec<List<PortRange>>,
    /// Reply source: where packets really go
    #[arg(long, value_name = "CIDR", help_heading = ENTRIES)]
    pub reply_src: Vec<List<Cidr>>,
    /// Reply destination: the source as the other side sees it
    #[arg(long, value_name = "CIDR", help_heading = ENTRIES)]
    pub reply_dst: Vec<List<Cidr>>,
    /// Reply source port
    #[arg(long, value_name = "PORTS", help_heading = ENTRIES)]
    pub reply_sport: Vec<List<PortRange>>,
    /// Reply destination port
    #[arg(long, value_name = "PORTS", help_heading = ENTRIES)]
    pub reply_dport: Vec<List<PortRange>>,
    /// Address or network in any of the four places
    #[arg(long, value_name = "CIDR", help_heading = ENTRIES)]
    pub ip: Vec<List<Cidr>>,
    /// Port in any of the four places
    #[arg(long, value_name = "PORTS", help_heading = ENTRIES)]
    pub port: Vec<List<PortRange>>,
    /// Status: assured, unreplied, seen-reply, offload, ...
    #[arg(long, value_name = "LIST", help_heading = ENTRIES)]
    pub status: Vec<List<StatusWord>>,
    /// Short for --status assured
    #[arg(long, help_heading = ENTRIES)]
    pub assured: bool,
    /// Short for --status unreplied
    #[arg(long, help_heading = ENTRIES)]
    pub unreplied: bool,
    /// TCP, SCTP or DCCP state: established,time_wait
    #[arg(long, value_name = "LIST", help_heading = ENTRIES)]
    pub state: Vec<List<StateWord>>,
    /// Source or destination translated
    #[arg(long, help_heading = ENTRIES)]
    pub nat: bool,
    /// Source translated
    #[arg(long, help_heading = ENTRIES)]
    pub snat: bool,
    /// Destination translated
    #[arg(long, help_heading = ENTRIES)]
    pub dnat: bool,
    /// Clients translated back to themselves
    #[arg(long, help_heading = ENTRIES)]
    pub hairpin: bool,
    /// Time left: '<30s' (from 10 to 30 s: --ttl '>=10s' --ttl '!>30s')
    #[arg(long, value_name = "COMPARISON", help_heading = ENTRIES)]
    pub ttl: Vec<List<Span>>,
    /// Time since the entry was made (needs nf_conntrack_timestamp): '>1h'
    #[arg(long, value_name = "COMPARISON", help_heading = ENTRIES)]
    pub age: Vec<List<Span>>,
    /// Packets both ways (needs nf_conntrack_acct): '>=1M'
    #[arg(long, value_name = "COMPARISON", help_heading = ENTRIES)]
    pub packets: Vec<List<Count>>,
    /// Bytes both ways (needs nf_conntrack_acct): '>1Gi'
    #[arg(long, value_name = "COMPARISON", help_heading = ENTRIES)]
    pub bytes: Vec<List<Count>>,
    /// Packet mark, decimal or 0x hexadecimal
    #[arg(long, value_name = "V[/MASK]", help_heading = ENTRIES)]
    pub mark: Vec<List<Mark>>,
    /// Conntrack zone
    #[arg(long, value_name = "N", help_heading = ENTRIES)]
    pub zone: Vec<List<ZoneId>>,
    /// Connection label: bit 7, its name in connlabel.conf, or the whole 0xVALUE[/0xMASK]
    #[arg(long, value_name = "V", help_heading = ENTRIES)]
    pub label: Vec<List<Label>>,
    /// Helper that reads the flow: ftp, sip
    #[arg(long, value_name = "NAME", help_heading = ENTRIES)]
    pub helper: Vec<List<HelperName>>,
    /// The kernel's id of the entry
    #[arg(long, value_name = "N", help_heading = ENTRIES)]
    pub id: Vec<List<EntryId>>,
    /// Regular expression on the line of -o wide, columns joined by one blank
    #[arg(long = "match", value_name = "REGEX", help_heading = ENTRIES)]
    pub matching: Vec<Pattern>,

    /// Service that the original destination is; PORT by name or number
    #[arg(long, value_name = "[NS/]NAME[:PORT]", help_heading = CLUSTER)]
    pub svc: Vec<List<ServiceRef>>,
    /// Pod, as client or endpoint
    #[arg(long, value_name = "[NS/]NAME", help_heading = CLUSTER)]
    pub pod: Vec<List<PodName>>,
    /// Client: pod, address or address:port
    #[arg(long, value_name = "CLIENT", help_heading = CLUSTER)]
    pub client: Vec<List<PartyName>>,
    /// Endpoint that packets go to: pod, address or address:port
    #[arg(long, value_name = "ENDPOINT", help_heading = CLUSTER)]
    pub endpoint: Vec<List<PartyName>>,
    /// Namespace of client, Service or endpoint
    #[arg(short, long, value_name = "NS", help_heading = CLUSTER)]
    pub namespace: Vec<List<Namespace>>,

    /// Verdict: stale, suspect, detached, pending, draining, unknown, ok, unrelated
    #[arg(long, value_name = "LIST", help_heading = VERDICTS)]
    pub verdict: Vec<List<VerdictWord>>,
    /// Reason of the verdict: endpoint-gone, no-dnat, ...
    #[arg(long, value_name = "LIST", help_heading = VERDICTS)]
    pub reason: Vec<List<ReasonWord>>,
    /// Verdict stale, UDP unless another protocol is named
    #[arg(long, help_heading = VERDICTS)]
    pub stale: bool,
    /// Timer keeps being refilled
    #[arg(long, help_heading = VERDICTS)]
    pub refreshing: bool,
}

impl SelectArgs {
    /// No selector was given.
    pub fn is_empty(&self) -> bool {
        // All fields by name: a new selector that is forgotten here does not compile.
        let SelectArgs {
            tcp,
            udp,
            sctp,
            icmp,
            proto,
            ipv4,
            ipv6,
            src,
            dst,
            sport,
            dport,
            reply_src,
            reply_dst,
            reply_sport,
            reply_dport,
            ip,
            port,
            status,
            assured,
            unreplied,
            state,
            nat,
            snat,
            dnat,
            hairpin,
            ttl,
            age,
            packets,
            bytes,
            mark,
            zone,
            label,
            helper,
            id,
            matching,
            svc,
            pod,
            client,
            endpoint,
            namespace,
            verdict,
            reason,
            stale,
            refreshing,
        } = self;
        let flags = [
            icmp, ipv4, ipv6, assured, unreplied, nat, snat, dnat, hairpin, stale, refreshing,
        ];
        !flags.into_iter().any(|flag| *flag)
            && [tcp, udp, sctp].into_iter().all(Vec::is_empty)
            && [src, dst, reply_src, reply_dst, ip]
                .into_iter()
                .all(Vec::is_empty)
            && [sport, dport, reply_sport, reply_dport, port]
                .into_iter()
                .all(Vec::is_empty)
            && [ttl, age].into_iter().all(Vec::is_empty)
            && [packets, bytes].into_iter().all(Vec::is_empty)
            && [client, endpoint].into_iter().all(Vec::is_empty)
            && (proto.is_empty() && status.is_empty() && state.is_empty() && mark.is_empty())
            && (zone.is_empty() && label.is_empty() && helper.is_empty() && id.is_empty())
            && (matching.is_empty() && svc.is_empty() && pod.is_empty() && namespace.is_empty())
            && (verdict.is_empty() && reason.is_empty())
    }
}
