//! Asks this machine for its rules: the tools of iptables and nftables, and what the kernel shows of IPVS.
//!
//! The tools are run without a table's name: `iptables-legacy-save -t nat` would load the table where there is none, and
//! with it connection tracking. They inherit the network namespace of the calling thread.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::tool::{self, Fault};

use super::lb_chain::{self, LbChain, ServiceFilter};
use super::nf_tables::{self, Table};
use super::present::proc_net;
use super::text::{self, TextError};
use super::{NodeRules, iptables, ipvs, nft};

/// For all tools together.
const BUDGET: Duration = Duration::from_secs(5);
/// What one tool may print: about a million rules.
const LIMIT: u64 = 256 << 20;
/// Tables of iptables.
const BUILT_IN: [&str; 5] = ["nat", "filter", "mangle", "raw", "security"];

/// Rules, and how they were read.
#[derive(Debug)]
pub struct Read {
    pub rules: NodeRules,
    /// Nothing newer can be in them: when reading began, or the file's modification time.
    pub time: SystemTime,
    /// The file; `None` for this machine's own rules.
    pub path: Option<PathBuf>,
    /// One line each: what could not be read, and what is odd.
    pub notes: Vec<String>,
    /// How the rules of the Service that was asked for spread new flows over endpoints.
    pub lb_chains: Vec<LbChain>,
}

/// Why there are no rules at all.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(
        "there is no tool to read this node's rules with: neither nft nor iptables-save was found"
    )]
    NoTool,
    #[error("reading this node's rules was refused: {0}")]
    Refused(String),
    #[error("this node's rules could not be read: {0}")]
    Failed(String),
    #[error("cannot read {path}: {error}")]
    File { path: PathBuf, error: io::Error },
    #[error("{path}: {error}")]
    Text { path: PathBuf, error: TextError },
}

/// Reads a saved rule set; `wanted`: and how the rules of this Service spread new flows over endpoints.
///
/// # Errors
/// [`ReadError::File`], [`ReadError::Text`]
pub fn file(path: &Path, filter: Option<&ServiceFilter>) -> Result<Read, ReadError> {
    let failed = |error| ReadError::File {
        path: path.to_owned(),
        error,
    };
    let began = SystemTime::now();
    let mut file = fs::File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let time = match metadata.is_file() {
        true => metadata.modified().map_err(failed)?,
        false => began,
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
    let read = text::read(&String::from_utf8_lossy(&bytes), filter);
    let (rules, lb_chains) = read.map_err(|error| ReadError::Text {
        path: path.to_owned(),
        error,
    })?;
    Ok(Read {
        rules,
        lb_chains: lb_chain::together(lb_chains),
        time,
        path: Some(path.to_owned()),
        notes: Vec::new(),
    })
}

/// Reads the rules of the network namespace that the calling thread is in; `wanted` as in [`file()`].
///
/// # Errors
/// No tool, or none that worked.
pub fn here(filter: Option<&ServiceFilter>) -> Result<Read, ReadError> {
    let mut reader = Reader::new(filter);
    let time = SystemTime::now();
    let mut saved = Vec::new();
    reader.iptables("iptables", "ip", &mut saved);
    reader.iptables("ip6tables", "ip6", &mut saved);
    reader.nft(&saved);
    reader.ipvs();
    match (reader.worked, reader.refused, reader.failed) {
        (0, Some(refused), _) => Err(ReadError::Refused(refused)),
        (0, None, Some(failed)) => Err(ReadError::Failed(failed)),
        (0, None, None) if !reader.no_tool_needed => Err(ReadError::NoTool),
        _ => Ok(Read {
            rules: reader.rules,
            time,
            path: None,
            notes: reader.notes,
            lb_chains: lb_chain::together(reader.lb_chains),
        }),
    }
}

/// What a tool said.
enum Said {
    Text(String),
    /// It is not installed.
    NoTool,
    /// It could not, or took too long.
    Failed,
}

/// A family of which `iptables-nft-save` gave these tables.
struct Saved {
    family: &'static str,
    text: String,
}

impl Saved {
    /// The table is one of iptables, and all of it is here.
    fn is_of(&self, table: &Table) -> bool {
        let name = &*table.name;
        BUILT_IN.contains(&name) && self.family == table.family.name() && self.has(name)
    }

    /// The table is there, and all of it.
    fn has(&self, table: &str) -> bool {
        let mut lines = self.text.lines();
        lines.any(|line| line.strip_prefix('*') == Some(table)) && !self.is_foreign(table)
    }

    /// `nft` wrote into the table what iptables cannot show.
    fn is_foreign(&self, table: &str) -> bool {
        let name = format!("`{table}'");
        let mut lines = self.text.lines();
        lines.any(|line| {
            line.starts_with('#') && line.contains("incompatible") && line.contains(&name)
        })
    }

    /// Tables that `nft` wrote itself under a name of iptables.
    fn has_foreign(&self) -> bool {
        let mut lines = self.text.lines();
        lines.any(|line| line.starts_with('#') && line.contains("incompatible"))
    }
}

struct Reader<'w> {
    until: Instant,
    filter: Option<&'w ServiceFilter>,
    rules: NodeRules,
    lb_chains: Vec<LbChain>,
    notes: Vec<String>,
    worked: usize,
    /// nf_tables holds no table beside those that were read.
    no_tool_needed: bool,
    refused: Option<String>,
    failed: Option<String>,
}

impl<'w> Reader<'w> {
    fn new(filter: Option<&'w ServiceFilter>) -> Self {
        Reader {
            filter,
            lb_chains: Vec::new(),
            until: Instant::now() + BUDGET,
            rules: NodeRules::default(),
            notes: Vec::new(),
            worked: 0,
            no_tool_needed: false,
            refused: None,
            failed: None,
        }
    }

    /// Both flavours of one family: their rules are in force side by side.
    fn iptables(&mut self, tool: &str, family: &'static str, saved: &mut Vec<Saved>) {
        // Packets are of use only where somebody asked how they were spread.
        let counted: &[&str] = match self.filter {
            Some(_) => &["-c"],
            None => &[],
        };
        let nft = match self.run(&format!("{tool}-nft-save"), counted) {
            Said::NoTool => self.run(&format!("{tool}-save"), counted),
            said => said,
        };
        let names = match tool {
            "iptables" => "ip_tables_names",
            _ => "ip6_tables_names",
        };
        let legacy = proc_net(names).unwrap_or_default();
        let legacy = match legacy.lines().any(|name| name == "nat") {
            false => Said::NoTool,
            true => match self.run(&format!("{tool}-legacy-save"), counted) {
                Said::NoTool if matches!(nft, Said::NoTool) => {
                    self.fault(format!("{tool}-legacy-save is not installed"), false);
                    Said::Failed
                }
                said => said,
            },
        };
        let holds =
            |said: &Said| matches!(said, Said::Text(text) if iptables::holds_kube_proxy(text));
        if holds(&nft) && holds(&legacy) {
            self.notes.push(format!(
                "both flavours of {tool} hold kube-proxy's rules (nft and legacy): one of them is likely left over"
            ));
        }
        if let Said::Text(text) = legacy {
            self.saved(&text);
        }
        if let Said::Text(text) = nft {
            self.saved(&text);
            saved.push(Saved { family, text });
        }
    }

    fn saved(&mut self, text: &str) {
        self.rules.merge(iptables::read(text));
        let lb_chains = self.filter.map(|filter| iptables::lb_chains(text, filter));
        self.lb_chains.extend(lb_chains.into_iter().flatten());
    }

    /// Tables that iptables did not write.
    fn nft(&mut self, saved: &[Saved]) {
        let others: Vec<Table> = match nf_tables::tables() {
            Ok(tables) => {
                let is_saved = |table: &Table| saved.iter().any(|saved| saved.is_of(table));
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
                Said::Text(json) => json,
                Said::NoTool => return self.without_nft(&others, saved),
                Said::Failed => continue,
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

    fn without_nft(&mut self, tables: &[Table], saved: &[Saved]) {
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
        // Without the module, or where nothing was ever balanced, there is no such file.
        match proc_net("ip_vs") {
            Ok(text) => self.rules.merge(ipvs::read(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.fault(
                format!("/proc/net/ip_vs: {error}"),
                error.kind() == io::ErrorKind::PermissionDenied,
            ),
        }
    }

    /// Rules that exist were not read.
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

    fn run(&mut self, tool: &str, arguments: &[&str]) -> Said {
        let Some(path) = tool::find(tool) else {
            return Said::NoTool;
        };
        let line = [&[tool], arguments].concat().join(" ");
        match tool::output(&path, arguments, self.until, LIMIT) {
            Ok(text) => {
                tracing::debug!(line, bytes = text.len(), "rules");
                self.worked += 1;
                Said::Text(text)
            }
            Err(Fault { text, refused }) => {
                self.fault(format!("{line}: {text}"), refused);
                Said::Failed
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::nf_tables::Family;
    use super::*;

    #[test]
    fn tables_that_only_nft_could_read_are_named_and_kube_proxys_is_missed() {
        let unread = |name: &str| {
            let mut reader = Reader::new(None);
            let (family, name) = (Family::Ip6, name.to_owned());
            reader.without_nft(&[Table { family, name }], &[]);
            (reader.notes.join("; "), reader.rules.cut)
        };
        let (note, cut) = unread("kube-proxy");
        assert!(note.contains("nft is not installed") && note.contains("(tables ip6 kube-proxy)"));
        assert!(cut);
        assert!(!unread("firewall").1);
    }
}
