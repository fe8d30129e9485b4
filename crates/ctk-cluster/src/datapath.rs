//! Programs that translate Services on this node in place of kube-proxy. BPF programs have no rules, and their translations are
//! not in the connection table in the form that kube-proxy would cause.
//!
//! Only traces of a running datapath are searched. A trace does not prove that kube-proxy is replaced (Cilium also runs together
//! with it, and maps stay pinned after its removal): callers must look for the rules of kube-proxy as well.

use std::fs;
use std::path::Path;

/// A datapath that can replace kube-proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datapath {
    Cilium,
    /// Calico with its eBPF dataplane; with iptables or nftables it needs kube-proxy and leaves none of these traces.
    CalicoEbpf,
}

impl Datapath {
    /// Name for display.
    pub const fn name(self) -> &'static str {
        match self {
            Datapath::Cilium => "Cilium",
            Datapath::CalicoEbpf => "Calico eBPF",
        }
    }

    /// Value of `summary.cluster.datapath` in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Datapath::Cilium => "cilium",
            Datapath::CalicoEbpf => "calico-ebpf",
        }
    }

    /// Reason why an entry to a Service gets no verdict where the datapath replaces kube-proxy.
    pub const fn because(self) -> &'static str {
        match self {
            Datapath::Cilium => "Cilium translates Services on this node, not kube-proxy",
            Datapath::CalicoEbpf => "Calico eBPF translates Services on this node, not kube-proxy",
        }
    }
}

/// Trace of a datapath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatapathMark {
    pub datapath: Datapath,
    /// Map, socket or interface, for display.
    pub what: String,
}

/// Folders in which both pin the maps that their programs share. The agent of Cilium may use the second.
const PINNED: [&str; 2] = ["sys/fs/bpf/tc/globals", "sys/fs/bpf/cilium"];

/// Prefixes of pinned maps with the frontends of Services; a version follows.
const MAPS: [(&str, Datapath); 4] = [
    ("cilium_lb4_services", Datapath::Cilium),
    ("cilium_lb6_services", Datapath::Cilium),
    ("cali_v4_nat_fe", Datapath::CalicoEbpf),
    ("cali_v6_nat_fe", Datapath::CalicoEbpf),
];

/// Sockets of agents. The agent of Calico has the same ones with every dataplane.
const SOCKETS: [(&str, Datapath); 2] = [
    ("run/cilium/cilium.sock", Datapath::Cilium),
    ("var/run/cilium/cilium.sock", Datapath::Cilium),
];

/// Interfaces, by their full names.
const DEVICES: [(&str, Datapath); 4] = [
    ("cilium_host", Datapath::Cilium),
    ("cilium_net", Datapath::Cilium),
    ("bpfin.cali", Datapath::CalicoEbpf),
    ("bpfout.cali", Datapath::CalicoEbpf),
];

/// Returns the first trace under `root` (`/` except in tests), in the calling thread's network namespace. An unreadable folder
/// yields no trace: only root can read pinned maps, but every user can read the interfaces.
pub fn find(root: &Path) -> Option<DatapathMark> {
    by_map(root)
        .or_else(|| by_device(root))
        .or_else(|| by_socket(root))
}

fn by_map(root: &Path) -> Option<DatapathMark> {
    let folders = PINNED.iter().filter_map(|folder| {
        let entries = fs::read_dir(root.join(folder)).ok()?;
        Some(entries.filter_map(move |entry| Some((folder, entry.ok()?))))
    });
    let mut names: Vec<(&str, String)> = folders
        .flatten()
        .filter_map(|(folder, entry)| Some((*folder, entry.file_name().into_string().ok()?)))
        .collect();
    // Returns the same one of several each time.
    names.sort();
    names.into_iter().find_map(|(folder, name)| {
        let mut maps = MAPS.iter();
        let (_, datapath) = maps.find(|(start, _)| name.starts_with(start))?;
        Some(DatapathMark {
            datapath: *datapath,
            what: format!("its BPF map /{folder}/{name}"),
        })
    })
}

fn by_device(root: &Path) -> Option<DatapathMark> {
    // Lists those of the calling thread's namespace; `/sys/class/net` shows the namespace in which it was mounted.
    let text = fs::read_to_string(root.join("proc/thread-self/net/dev")).ok()?;
    let mut names = text
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0.trim()));
    names.find_map(|name| {
        let (_, datapath) = DEVICES.iter().find(|(device, _)| *device == name)?;
        Some(DatapathMark {
            datapath: *datapath,
            what: format!("its interface {name}"),
        })
    })
}

fn by_socket(root: &Path) -> Option<DatapathMark> {
    let (path, datapath) = SOCKETS.iter().find(|(path, _)| root.join(path).exists())?;
    Some(DatapathMark {
        datapath: *datapath,
        what: format!("its agent's socket /{path}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datapath_is_recognized_only_by_its_maps_interfaces_and_sockets() {
        let globals = "sys/fs/bpf/tc/globals";
        let dev = "Inter-|   Receive\n face |bytes\n    lo: 0 0\n";
        for (path, text, expected) in [
            (format!("{globals}/cilium_lb4_services_v2"), "", "cilium"),
            (format!("{globals}/cilium_lb6_services_v2"), "", "cilium"),
            (
                "sys/fs/bpf/cilium/cilium_lb4_services_v2".to_owned(),
                "",
                "cilium",
            ),
            (format!("{globals}/cali_v4_nat_fe3"), "", "calico-ebpf"),
            (format!("{globals}/cali_v6_nat_fe"), "", "calico-ebpf"),
            ("run/cilium/cilium.sock".to_owned(), "", "cilium"),
            ("var/run/cilium/cilium.sock".to_owned(), "", "cilium"),
            (
                "proc/thread-self/net/dev".to_owned(),
                "cilium_host: 1 2\n",
                "cilium",
            ),
            (
                "proc/thread-self/net/dev".to_owned(),
                "bpfin.cali: 1 2\n",
                "calico-ebpf",
            ),
            // Maps of policies alone, Calico with iptables, interfaces with similar names, programs of a tracer.
            (format!("{globals}/cilium_policy_v2_00042"), "", ""),
            ("var/run/calico/bird.ctl".to_owned(), "", ""),
            ("sys/fs/bpf/tetragon/base".to_owned(), "", ""),
            (
                "proc/thread-self/net/dev".to_owned(),
                "cali12345: 1 2\n",
                "",
            ),
            (
                "proc/thread-self/net/dev".to_owned(),
                "cilium_host2: 1 2\n",
                "",
            ),
            ("etc/hostname".to_owned(), "cilium_host:", ""),
        ] {
            let root = tempfile::tempdir().unwrap();
            let file = root.path().join(&path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, format!("{dev}{text}")).unwrap();
            let found = find(root.path());
            let word = found.as_ref().map_or("", |mark| mark.datapath.word());
            assert_eq!(word, expected, "{path} {text}: {found:?}");
        }
        assert_eq!(find(Path::new("/no/such/folder")), None);
    }
}
