//! Reads the rules of this machine with the tools of iptables and nftables, and from the kernel's list of IPVS servers.
//!
//! The tools are run without the name of a table: `iptables-legacy-save -t nat` would load a missing table, and with it
//! connection tracking. They inherit the network namespace of the calling thread.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::bounded_read;
use crate::tool::{self, Fault};

use super::lb_chain::{self, LbChain, ServiceFilter};
use super::nf_tables::{self, KernelTable};
use super::present::proc_net;
use super::text::{self, TextError};
use super::{NodeRules, iptables, ipvs, nft};

/// Time limit of all tools together.
const TOOLS_TIME_LIMIT: Duration = Duration::from_secs(5);
/// Maximum output of one tool in bytes: about a million rules.
const MAX_OUTPUT: u64 = 256 << 20;
/// Tables of iptables.
const BUILT_IN: [&str; 5] = ["nat", "filter", "mangle", "raw", "security"];

/// Rules, and their source.
#[derive(Debug)]
pub struct Read {
    pub rules: NodeRules,
    /// Upper bound of the age: the start of the reading, or the modification time of the file.
    pub time: SystemTime,
    /// Path of the file; `None` for the rules of this machine.
    pub path: Option<PathBuf>,
    /// Notes, one line each: unreadable rules and oddities.
    pub notes: Vec<String>,
    /// Shares of endpoints in the new flows of the requested Service.
    pub lb_chains: Vec<LbChain>,
}

/// Reason why no rules could be read.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    #[error("no tool to read this node's rules was found: neither nft nor iptables-save was found")]
    NoTool,
    #[error("reading this node's rules was refused: {0}")]
    Refused(String),
    #[error("this node's rules could not be read: {0}")]
    Failed(String),
    #[error("cannot read {path}")]
    File {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("{path}")]
    Text {
        path: PathBuf,
        #[source]
        error: TextError,
    },
}

/// Reads a saved rule set. With `wanted` also the shares of endpoints in the new flows of that Service.
///
/// # Errors
/// [`RulesError::File`], [`RulesError::Text`]
pub fn file(path: &Path, filter: Option<&ServiceFilter>) -> Result<Read, RulesError> {
    let failed = |error| RulesError::File {
        path: path.to_owned(),
        error,
    };
    let began = SystemTime::now();
    let file = fs::File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let time = match metadata.is_file() {
        true => metadata.modified().map_err(failed)?,
        false => began,
    };
    let bytes = bounded_read::contents(file, MAX_OUTPUT >> 20).map_err(failed)?;
    let saved = String::from_utf8_lossy(&bytes);
    let read = text::read(&saved, filter);
    let (rules, lb_chains) = read.map_err(|error| RulesError::Text {
        path: path.to_owned(),
        error,
    })?;
    Ok(Read {
        rules,
        lb_chains: lb_chain::together(lb_chains),
        time,
        path: Some(path.to_owned()),
        notes: match iptables::is_cut(&saved) {
            true => vec![format!(
                "{} holds a table without COMMIT at its end: rules may be missing",
                path.display()
            )],
            false => Vec::new(),
        },
    })
}

/// Reads the rules of the calling thread's network namespace; `wanted` as in [`file()`].
///
/// # Errors
/// No tool is installed, or every tool failed.
pub fn here(filter: Option<&ServiceFilter>) -> Result<Read, RulesError> {
    let mut reader = NodeReader::new(filter);
    let time = SystemTime::now();
    let mut saved = Vec::new();
    reader.iptables("iptables", "ip", &mut saved);
    reader.iptables("ip6tables", "ip6", &mut saved);
    reader.nft(&saved);
    reader.ipvs();
    match (reader.worked, reader.refused, reader.failed) {
        (0, Some(refused), _) => Err(RulesError::Refused(refused)),
        (0, None, Some(failed)) => Err(RulesError::Failed(failed)),
        (0, None, None) if !reader.no_tool_needed => Err(RulesError::NoTool),
        _ => Ok(Read {
            rules: reader.rules,
            time,
            path: None,
            notes: reader.notes,
            lb_chains: lb_chain::together(reader.lb_chains),
        }),
    }
}

/// Result of running a tool.
enum ToolResult {
    Text(String),
    /// The tool is not installed.
    NoTool,
    /// The tool failed or took too long.
    Failed,
}

/// Tables of one family that `iptables-nft-save` printed.
struct Saved {
    family: &'static str,
    text: String,
}

impl Saved {
    /// Reports whether the table is one of iptables and was read completely.
    fn is_of(&self, table: &KernelTable) -> bool {
        let name = &*table.name;
        BUILT_IN.contains(&name) && self.family == table.family.name() && self.has(name)
    }

    /// Reports whether the table exists and was read completely.
    fn has(&self, table: &str) -> bool {
        let mut lines = self.text.lines();
        lines.any(|line| line.strip_prefix('*') == Some(table)) && !self.is_foreign(table)
    }

    /// Reports whether `nft` added chains to the table that iptables cannot show.
    fn is_foreign(&self, table: &str) -> bool {
        let name = format!("`{table}'");
        let mut lines = self.text.lines();
        lines.any(|line| {
            line.starts_with('#') && line.contains("incompatible") && line.contains(&name)
        })
    }

    /// Tables that `nft` itself wrote under a name of iptables.
    fn has_foreign(&self) -> bool {
        let mut lines = self.text.lines();
        lines.any(|line| line.starts_with('#') && line.contains("incompatible"))
    }
}

struct NodeReader<'w> {
    until: Instant,
    filter: Option<&'w ServiceFilter>,
    rules: NodeRules,
    lb_chains: Vec<LbChain>,
    notes: Vec<String>,
    worked: usize,
    /// Reports whether nf_tables holds only tables that were read.
    no_tool_needed: bool,
    refused: Option<String>,
    failed: Option<String>,
}

impl<'w> NodeReader<'w> {
    fn new(filter: Option<&'w ServiceFilter>) -> Self {
        NodeReader {
            filter,
            lb_chains: Vec::new(),
            until: Instant::now() + TOOLS_TIME_LIMIT,
            rules: NodeRules::default(),
            notes: Vec::new(),
            worked: 0,
            no_tool_needed: false,
            refused: None,
            failed: None,
        }
    }

    /// Reads both flavours of one family: the rules of both are in force.
    fn iptables(&mut self, tool: &str, family: &'static str, saved: &mut Vec<Saved>) {
        // Packets are counted only where the shares of a Service are requested.
        let counted: &[&str] = match self.filter {
            Some(_) => &["-c"],
            None => &[],
        };
        let nft = match self.run(&format!("{tool}-nft-save"), counted) {
            ToolResult::NoTool => self.run(&format!("{tool}-save"), counted),
            said => said,
        };
        let names = match tool {
            "iptables" => "ip_tables_names",
            _ => "ip6_tables_names",
        };
        let legacy = proc_net(names).unwrap_or_default();
        let legacy = match legacy.lines().any(|name| name == "nat") {
            false => ToolResult::NoTool,
            true => match self.run(&format!("{tool}-legacy-save"), counted) {
                ToolResult::NoTool if matches!(nft, ToolResult::NoTool) => {
                    self.fault(format!("{tool}-legacy-save is not installed"), false);
                    ToolResult::Failed
                }
                said => said,
            },
        };
        let holds = |said: &ToolResult| matches!(said, ToolResult::Text(text) if iptables::holds_kube_proxy(text));
        if holds(&nft) && holds(&legacy) {
            self.notes.push(format!(
                "both flavours of {tool} hold kube-proxy's rules (nft and legacy): one of them is likely left over"
            ));
        }
        if let ToolResult::Text(text) = legacy {
            self.saved(&text);
        }
        if let ToolResult::Text(text) = nft {
            self.saved(&text);
            saved.push(Saved { family, text });
        }
    }

    fn saved(&mut self, text: &str) {
        self.rules.merge(iptables::read(text));
        let lb_chains = self.filter.map(|filter| iptables::lb_chains(text, filter));
        self.lb_chains.extend(lb_chains.into_iter().flatten());
    }

    /// Reads the tables that iptables did not write.
    fn nft(&mut self, saved: &[Saved]) {
        let others: Vec<KernelTable> = match nf_tables::tables() {
            Ok(tables) => {
                let is_saved = |table: &KernelTable| saved.iter().any(|saved| saved.is_of(table));
                tables.into_iter().filter(|t| !is_saved(t)).collect()
            }
            Err(error) => {
                let refused = error.kind() == io::ErrorKind::PermissionDenied;
                return self.fault(format!("tables of nftables: {error}"), refused);
            }
        };
        self.no_tool_needed = others.is_empty();
        let families: Vec<&str> = saved.iter().map(|saved| saved.family).collect();
        for table in &others {
            let (family, name) = (table.family.name(), &*table.name);
            let json = match self.run("nft", &["-j", "list", "table", family, name]) {
                ToolResult::Text(json) => json,
                ToolResult::NoTool => return self.without_nft(&others, saved),
                ToolResult::Failed => continue,
            };
            let lb_chains = self.filter.map(|filter| nft::lb_chains(&json, filter));
            self.lb_chains
                .extend(lb_chains.into_iter().filter_map(Result::ok).flatten());
            match nft::read(&json, &families) {
                Ok(rules) => self.rules.merge(rules),
                Err(error) => {
                    self.fault(format!("nft -j list table {family} {name}: {error}"), false)
                }
            }
        }
    }

    fn without_nft(&mut self, tables: &[KernelTable], saved: &[Saved]) {
        let names: Vec<String> = tables
            .iter()
            .map(|table| format!("{} {}", table.family.name(), table.name))
            .collect();
        self.notes.push(format!(
            "nft is not installed: rules of nftables are not seen (tables {})",
            names.join(", ")
        ));
        let kube_proxy = tables.iter().any(|table| nft::is_kube_proxy(&table.name));
        self.rules.cut |= kube_proxy || saved.iter().any(Saved::has_foreign);
    }

    fn ipvs(&mut self) {
        // The file is missing without the module, and where IPVS was never used.
        match proc_net("ip_vs") {
            Ok(text) => self.rules.merge(ipvs::read(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.fault(
                format!("/proc/net/ip_vs: {error}"),
                error.kind() == io::ErrorKind::PermissionDenied,
            ),
        }
    }

    /// Notes that existing rules were not read.
    fn fault(&mut self, what: String, refused: bool) {
        tracing::info!(what, "rules");
        self.rules.cut = true;
        self.notes.push(what.clone());
        let kept = match refused {
            true => &mut self.refused,
            false => &mut self.failed,
        };
        kept.get_or_insert(what);
    }

    fn run(&mut self, tool: &str, arguments: &[&str]) -> ToolResult {
        let Some(path) = tool::find(tool) else {
            return ToolResult::NoTool;
        };
        let line = [&[tool], arguments].concat().join(" ");
        match tool::output(&path, arguments, self.until, MAX_OUTPUT) {
            Ok(text) => {
                tracing::debug!(line, bytes = text.len(), "rules");
                self.worked += 1;
                ToolResult::Text(text)
            }
            Err(Fault { text, refused }) => {
                self.fault(format!("{line}: {text}"), refused);
                ToolResult::Failed
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::nf_tables::TableFamily;
    use super::*;

    #[test]
    fn unread_tables_of_nft_are_named_and_one_of_kube_proxy_makes_the_rules_incomplete() {
        let unread = |name: &str| {
            let mut reader = NodeReader::new(None);
            let (family, name) = (TableFamily::Ip6, name.to_owned());
            reader.without_nft(&[KernelTable { family, name }], &[]);
            (reader.notes.join("; "), reader.rules.cut)
        };
        let (note, cut) = unread("kube-proxy");
        assert!(note.contains("nft is not installed") && note.contains("(tables ip6 kube-proxy)"));
        assert!(cut);
        assert!(!unread("firewall").1);
    }
}
