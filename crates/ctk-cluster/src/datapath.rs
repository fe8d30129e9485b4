//! Who translates Services on this node in kube-proxy's place: BPF programs leave no trace in the rules, and what they
//! translate does not stand in the connection table as kube-proxy would have written it.
//!
//! Only marks that a running datapath leaves are looked for. A mark is no proof that kube-proxy is replaced (Cilium runs
//! beside it, too, and maps stay pinned when it is removed): whoever asks looks for kube-proxy's rules as well.

use std::fs;
use std::path::Path;

/// A datapath that can take kube-proxy's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datapath {
    Cilium,
    /// Calico with its eBPF dataplane; with iptables or nftables it needs kube-proxy and leaves none of these marks.
    CalicoEbpf,
}

impl Datapath {
    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Datapath::Cilium => "Cilium",
            Datapath::CalicoEbpf => "Calico eBPF",
        }
    }

    /// The word of `summary.cluster.datapath` in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Datapath::Cilium => "cilium",
            Datapath::CalicoEbpf => "calico-ebpf",
        }
    }

    /// Why an entry to a Service is not judged where it replaces kube-proxy.
    pub const fn because(self) -> &'static str {
        match self {
            Datapath::Cilium => "Cilium translates Services on this node, not kube-proxy",
            Datapath::CalicoEbpf => "Calico eBPF translates Services on this node, not kube-proxy",
        }
    }
}

/// What was seen of a datapath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub datapath: Datapath,
    /// The map, socket or interface, for people.
    pub what: String,
}

/// Where both pin the maps that their programs share. Cilium's agent may use the second.
const PINNED: [&str; 2] = ["sys/fs/bpf/tc/globals", "sys/fs/bpf/cilium"];

/// Names of pinned maps begin so: frontends of Services, with versions at the end.
const MAPS: [(&str, Datapath); 4] = [
    ("cilium_lb4_services", Datapath::Cilium),
    ("cilium_lb6_services", Datapath::Cilium),
    ("cali_v4_nat_fe", Datapath::CalicoEbpf),
    ("cali_v6_nat_fe", Datapath::CalicoEbpf),
];

/// Sockets of agents. Calico's agent has the same ones with every dataplane.
const SOCKETS: [(&str, Datapath); 2] = [
    ("run/cilium/cilium.sock", Datapath::Cilium),
    ("var/run/cilium/cilium.sock", Datapath::Cilium),
];

/// Devices, by their whole names.
const DEVICES: [(&str, Datapath); 4] = [
    ("cilium_host", Datapath::Cilium),
    ("cilium_net", Datapath::Cilium),
    ("bpfin.cali", Datapath::CalicoEbpf),
    ("bpfout.cali", Datapath::CalicoEbpf),
];

/// The first mark under `root` (`/` but in tests), in the calling thread's network namespace. What cannot be read shows
/// nothing: only root sees pinned maps, but everybody sees the devices.
pub fn find(root: &Path) -> Option<Mark> {
    by_map(root)
        .or_else(|| by_device(root))
        .or_else(|| by_socket(root))
}

fn by_map(root: &Path) -> Option<Mark> {
    let folders = PINNED.iter().filter_map(|folder| {
        let entries = fs::read_dir(root.join(folder)).ok()?;
        Some(entries.filter_map(move |entry| Some((folder, entry.ok()?))))
    });
    let mut names: Vec<(&str, String)> = folders
        .flatten()
        .filter_map(|(folder, entry)| Some((*folder, entry.file_name().into_string().ok()?)))
        .collect();
    // Of several the same one each time.
    names.sort();
    names.into_iter().find_map(|(folder, name)| {
        let mut maps = MAPS.iter();
        let (_, datapath) = maps.find(|(start, _)| name.starts_with(start))?;
        Some(Mark {
            datapath: *datapath,
            what: format!("its BPF map /{folder}/{name}"),
        })
    })
}

fn by_device(root: &Path) -> Option<Mark> {
    // Of the calling thread's namespace; `/sys/class/net` is that of whoever mounted it.
    let text = fs::read_to_string(root.join("proc/thread-self/net/dev")).ok()?;
    let mut names = text
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0.trim()));
    names.find_map(|name| {
        let (_, datapath) = DEVICES.iter().find(|(device, _)| *device == name)?;
        Some(Mark {
            datapath: *datapath,
            what: format!("its interface {name}"),
        })
    })
}

fn by_socket(root: &Path) -> Option<Mark> {
    let (path, datapath) = SOCKETS.iter().find(|(path, _)| root.join(path).exists())?;
    Some(Mark {
        datapath: *datapath,
        what: format!("its agent's socket /{path}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datapath_is_known_by_its_maps_devices_and_sockets_and_by_nothing_else() {
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
            // Maps of policies alone, Calico with iptables, devices that only look so, a tracer's programs.
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
