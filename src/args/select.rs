//! Selectors as typed: the same on `ls`, `watch`, `purge`, `top` and `svc`.
//!
//! Clap parses the values, so that an impossible value is a usage error that names its flag.

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

// No doc comment: clap would print it as the help text of the command that flattens this struct.
#[derive(Args, Clone, Debug, Default)]
pub struct SelectArgs {
    /// TCP, with original destination port PORTS if given; with --udp or --sctp: either
    #[arg(long, value_name = "PORTS", num_args = 0..=1, default_missing_value = OptionalPorts::NOT_GIVEN, help_heading = ENTRIES)]
    pub tcp: Vec<OptionalPorts>,
    /// UDP, with original destination port PORTS if given: --udp 53
    #[arg(long, value_name = "PORTS", num_args = 0..=1, default_missing_value = OptionalPorts::NOT_GIVEN, help_heading = ENTRIES)]
    pub udp: Vec<OptionalPorts>,
    /// SCTP, with original destination port PORTS if given
    #[arg(long, value_name = "PORTS", num_args = 0..=1, default_missing_value = OptionalPorts::NOT_GIVEN, help_heading = ENTRIES)]
    pub sctp: Vec<OptionalPorts>,
    /// ICMP and ICMPv6
    #[arg(long, help_heading = ENTRIES)]
    pub icmp: bool,
    /// Protocol by name or IANA number
    #[arg(short, long, value_name = "NAME|N", help_heading = ENTRIES)]
    pub proto: Vec<List<Protocol>>,
    /// IPv4 only [default: both families]
    #[arg(short = '4', conflicts_with = "ipv6", help_heading = ENTRIES)]
    pub ipv4: bool,
    /// IPv6 only [default: both families]
    #[arg(short = '6', help_heading = ENTRIES)]
    pub ipv6: bool,
    /// Original source address or network
    #[arg(long, value_name = "CIDR", help_heading = ENTRIES)]
    pub src: Vec<List<Cidr>>,
    /// Original destination address or network, before translation
    #[arg(long, value_name = "CIDR", help_heading = ENTRIES)]
    pub dst: Vec<List<Cidr>>,
    /// Original source port: 53, 8000-8100, domain
    #[arg(long, value_name = "PORTS", help_heading = ENTRIES)]
    pub sport: Vec<List<PortRange>>,
    /// Original destination port
    #[arg(long, value_name = "PORTS", help_heading = ENTRIES)]
    pub dport: Vec<List<PortRange>>,
    /// Reply source address or network: the endpoint that packets go to
    #[arg(long, value_name = "CIDR", help_heading = ENTRIES)]
    pub reply_src: Vec<List<Cidr>>,
    /// Reply destination address or network: the source as the endpoint sees it
    #[arg(long, value_name = "CIDR", help_heading = ENTRIES)]
    pub reply_dst: Vec<List<Cidr>>,
    /// Reply source port
    #[arg(long, value_name = "PORTS", help_heading = ENTRIES)]
    pub reply_sport: Vec<List<PortRange>>,
    /// Reply destination port
    #[arg(long, value_name = "PORTS", help_heading = ENTRIES)]
    pub reply_dport: Vec<List<PortRange>>,
    /// Address or network, as source or destination of either tuple
    #[arg(long, value_name = "CIDR", help_heading = ENTRIES)]
    pub ip: Vec<List<Cidr>>,
    /// Port, as source or destination of either tuple
    #[arg(long, value_name = "PORTS", help_heading = ENTRIES)]
    pub port: Vec<List<PortRange>>,
    /// Status flags: assured, unreplied, seen-reply, offload, ...
    #[arg(long, value_name = "LIST", help_heading = ENTRIES)]
    pub status: Vec<List<StatusWord>>,
    /// Short for --status assured
    #[arg(long, help_heading = ENTRIES)]
    pub assured: bool,
    /// Short for --status unreplied
    #[arg(long, help_heading = ENTRIES)]
    pub unreplied: bool,
    /// TCP, SCTP or DCCP states: established,time_wait
    #[arg(long, value_name = "LIST", help_heading = ENTRIES)]
    pub state: Vec<List<StateWord>>,
    /// Source or destination translated
    #[arg(long, help_heading = ENTRIES)]
    pub nat: bool,
    /// Source translated
    #[arg(long, help_heading = ENTRIES)]
    pub snat: bool,
    /// Source port changed by translation
    #[arg(long, help_heading = ENTRIES)]
    pub sport_changed: bool,
    /// Destination translated
    #[arg(long, help_heading = ENTRIES)]
    pub dnat: bool,
    /// Client translated back to itself
    #[arg(long, help_heading = ENTRIES)]
    pub hairpin: bool,
    /// Time left until the entry expires: '<30s'; from 10 to 30 s: --ttl '>=10s' --ttl '!>30s'
    #[arg(long, value_name = "COMPARISON", help_heading = ENTRIES)]
    pub ttl: Vec<List<Span>>,
    /// Time since the entry was created: '>1h'; needs nf_conntrack_timestamp=1
    #[arg(long, value_name = "COMPARISON", help_heading = ENTRIES)]
    pub age: Vec<List<Span>>,
    /// Packets of both directions: '>=1M'; needs nf_conntrack_acct=1
    #[arg(long, value_name = "COMPARISON", help_heading = ENTRIES)]
    pub packets: Vec<List<Count>>,
    /// Bytes of both directions: '>1Gi'; needs nf_conntrack_acct=1
    #[arg(long, value_name = "COMPARISON", help_heading = ENTRIES)]
    pub bytes: Vec<List<Count>>,
    /// Mark, decimal or hexadecimal (0x...)
    #[arg(long, value_name = "V[/MASK]", help_heading = ENTRIES)]
    pub mark: Vec<List<Mark>>,
    /// Conntrack zone
    #[arg(long, value_name = "N", help_heading = ENTRIES)]
    pub zone: Vec<List<ZoneId>>,
    /// Connection label: a bit number, a name from connlabel.conf, or 0xVALUE[/0xMASK]
    #[arg(long, value_name = "V", help_heading = ENTRIES)]
    pub label: Vec<List<Label>>,
    /// Helper of the entry: ftp, sip, ...; none for entries without a helper
    #[arg(long, value_name = "NAME", help_heading = ENTRIES)]
    pub helper: Vec<List<HelperName>>,
    /// Id of the entry
    #[arg(long, value_name = "N", help_heading = ENTRIES)]
    pub id: Vec<List<EntryId>>,
    /// Regular expression on the columns of -o wide, joined by one blank
    #[arg(long = "match", value_name = "REGEX", help_heading = ENTRIES)]
    pub matching: Vec<Pattern>,

    /// Service of the original destination; PORT is a name or number
    #[arg(long, value_name = "[NS/]NAME[:PORT]", help_heading = CLUSTER)]
    pub svc: Vec<List<ServiceRef>>,
    /// Pod, as client or as endpoint
    #[arg(long, value_name = "[NS/]NAME", help_heading = CLUSTER)]
    pub pod: Vec<List<PodName>>,
    /// Client: a pod, an address or address:port
    #[arg(long, value_name = "CLIENT", help_heading = CLUSTER)]
    pub client: Vec<List<PartyName>>,
    /// Endpoint: a pod, an address or address:port
    #[arg(long, value_name = "ENDPOINT", help_heading = CLUSTER)]
    pub endpoint: Vec<List<PartyName>>,
    /// Kubernetes namespace of the client, Service or endpoint
    #[arg(short, long, value_name = "NS", help_heading = CLUSTER)]
    pub namespace: Vec<List<Namespace>>,

    /// Verdicts: stale, suspect, detached, pending, draining, unknown, ok, unrelated
    #[arg(long, value_name = "LIST", help_heading = VERDICTS)]
    pub verdict: Vec<List<VerdictWord>>,
    /// Reasons of the verdict: endpoint-gone, no-dnat, ...
    #[arg(long, value_name = "LIST", help_heading = VERDICTS)]
    pub reason: Vec<List<ReasonWord>>,
    /// Verdict stale; only UDP unless another protocol is selected
    #[arg(long, help_heading = VERDICTS)]
    pub stale: bool,
    /// Refreshed: packets keep refilling the timer
    #[arg(long, help_heading = VERDICTS)]
    pub refreshing: bool,
}

impl SelectArgs {
    /// Returns whether no selector was given.
    pub fn is_empty(&self) -> bool {
        // Names all fields, so that a new selector that is missing here does not compile.
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
            sport_changed,
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
            icmp,
            ipv4,
            ipv6,
            assured,
            unreplied,
            nat,
            snat,
            dnat,
            hairpin,
            stale,
            refreshing,
            sport_changed,
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
