//! Programs run in the network namespace of the calling thread, and their output.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Reports that a test is skipped. Fails where nothing may be skipped (`CI=true`).
#[track_caller]
pub fn skipped(why: &str) {
    eprintln!("skipped: {why}");
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "CI=true needs it: {why}"
    );
}

/// Exit status and output of a program.
#[derive(Debug)]
pub struct Outcome {
    /// `None` when a signal ended it.
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    pub fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        Outcome {
            status: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Asserts the exit status.
    #[track_caller]
    pub fn exits(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "{self:#?}");
        self
    }

    /// Items of `-o jsonl`.
    pub fn jsonl(&self) -> Vec<Value> {
        let item = |line| serde_json::from_str(line).expect("a line of jsonl is JSON");
        self.stdout.lines().map(item).collect()
    }

    /// The document of `-o json`.
    #[track_caller]
    pub fn json(&self) -> Value {
        let document: Value =
            serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"));
        assert_eq!(document["schema"], "ctk/v1");
        document
    }

    /// Items of the document of `-o json`.
    #[track_caller]
    pub fn items(&self) -> Vec<Value> {
        let Value::Array(items) = self.json()["items"].take() else {
            panic!("no items: {self:#?}")
        };
        items
    }
}

/// `command` with arguments, without the variables that change the output of ctk.
pub fn clean<I: IntoIterator<Item: AsRef<OsStr>>>(mut command: Command, args: I) -> Command {
    command.args(args).stdin(Stdio::null());
    for name in [
        "NODE_NAME",
        "KUBECONFIG",
        "HOME",
        "XDG_CACHE_HOME",
        "KUBERNETES_SERVICE_HOST",
        "HTTPS_PROXY",
        "https_proxy",
        "CLICOLOR_FORCE",
        "NO_COLOR",
    ] {
        command.env_remove(name);
    }
    command
}

/// Runs a program that must succeed.
#[track_caller]
pub fn run(program: &str, args: &[&str]) -> Outcome {
    let output = Command::new(program).args(args).output();
    let said = Outcome::of(output.unwrap_or_else(|error| panic!("{program}: {error}")));
    assert_eq!(said.status, Some(0), "{program} {args:?}: {said:#?}");
    said
}

/// Creates an entry by the `conntrack` tool. `tuples` are `SRC:PORT DST:PORT REPLY_SRC:PORT`, `more` are further arguments:
/// protocol, status, state. The reply goes to the source, the timeout is 100 s.
#[track_caller]
pub fn create_entry(tuples: &str, more: &str) {
    let ends: Vec<(&str, &str)> = tuples
        .split_whitespace()
        .map(|end| end.rsplit_once(':').expect("ADDRESS:PORT"))
        .collect();
    let [(src, sport), (dst, dport), (from, from_port)] = ends[..] else {
        panic!("{tuples}")
    };
    let line = format!(
        "-I {more} -t 100 -s {src} --sport {sport} -d {dst} --dport {dport} -r {from} --reply-port-src {from_port} \
         -q {src} --reply-port-dst {sport}"
    );
    run("conntrack", &line.split_whitespace().collect::<Vec<_>>());
}

/// Reports whether the program exists and succeeds.
pub fn succeeds(program: &str, args: &[&str]) -> bool {
    let output = Command::new(program).args(args).output();
    output.is_ok_and(|output| output.status.success())
}

/// Runs a program that must succeed, with a text on its standard input.
#[track_caller]
pub fn run_with(program: &str, args: &[&str], input: &str) {
    use std::io::Write;
    // An ordinary user may not lock the usual file, and no other process uses this namespace.
    let lock = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut child = Command::new(program)
        .args(args)
        .env("XTABLES_LOCKFILE", lock.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{program}: {output:?}\n{input}");
}

/// Sends SIGINT, the signal of Ctrl-C, to a child that was not waited for.
pub fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT)
        .expect("the child exists until it is waited for");
}

/// Loads nftables rules.
#[track_caller]
pub fn nft(rules: &str) {
    run_with("nft", &["-f", "-"], rules);
}

/// Writes a sysctl of this namespace's connection tracking.
pub fn sysctl(name: &str, value: &str) {
    let path = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
    std::fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// Identity of an entry: protocol, addresses, zone and id.
pub fn key(item: &Value) -> String {
    format!(
        "{} {} {} {} {}",
        item["protocol_number"],
        item["original"]["src"],
        item["original"]["dst"],
        item["zone"],
        item["id"]
    )
}

/// Items by their key, each once.
#[track_caller]
pub fn by_key(items: Vec<Value>) -> BTreeMap<String, Value> {
    let count = items.len();
    let map: BTreeMap<_, _> = items.into_iter().map(|item| (key(&item), item)).collect();
    assert_eq!(map.len(), count, "an entry came twice");
    map
}

/// Asserts the form of an error: the status, an error and a hint on standard error, nothing on standard output.
#[track_caller]
pub fn assert_error(said: &Outcome, status: i32, says: &[&str]) {
    assert_eq!(said.status, Some(status), "{said:#?}");
    assert_eq!(said.stdout, "", "{said:#?}");
    let mut lines = said
        .stderr
        .lines()
        .skip_while(|line| !line.starts_with("ctk: error: "));
    let error = lines
        .next()
        .unwrap_or_else(|| panic!("no error: {said:#?}"));
    for word in says {
        assert!(
            error.contains(word) || said.stderr.contains(word),
            "{word}: {said:#?}"
        );
    }
    assert!(
        said.stderr.lines().any(|line| line.starts_with("hint: ")),
        "{said:#?}"
    );
    assert!(!said.stderr.contains("panicked"), "{said:#?}");
}

/// Copy of a binary that every user may run, in a folder that is removed with the first value.
pub fn readable_copy(original: &Path) -> (tempfile::TempDir, String) {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let open = || Permissions::from_mode(0o755);
    let binary = folder.path().join(original.file_name().unwrap());
    std::fs::copy(original, &binary).unwrap();
    set_permissions(folder.path(), open()).unwrap();
    set_permissions(&binary, open()).unwrap();
    let binary = binary.to_str().unwrap().to_owned();
    (folder, binary)
}

/// `binary` with arguments, as a user without privilege where the caller is root.
pub fn as_nobody(binary: &str, args: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    if nix::unistd::geteuid().is_root() {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    command.args(["--", binary]);
    clean(command, args)
}

/// Wrappers of the tools that print rules. Each logs its command line and runs the real tool.
pub struct LoggedTools {
    folder: tempfile::TempDir,
}

impl Default for LoggedTools {
    fn default() -> Self {
        Self::new()
    }
}

impl LoggedTools {
    pub fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        std::fs::write(&log, "").unwrap();
        for tool in ["iptables-nft-save", "ip6tables-nft-save", "nft"] {
            let script = format!(
                "#!/bin/sh\necho {tool} $* >> {}\nPATH=/usr/sbin:/sbin:/usr/bin:/bin exec {tool} \"$@\"\n",
                log.display()
            );
            let path = folder.path().join(tool);
            std::fs::write(&path, script).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        LoggedTools { folder }
    }

    /// Value of `PATH` that finds the wrappers first.
    pub fn path(&self) -> String {
        format!("{}:/usr/bin:/bin", self.folder.path().display())
    }

    /// Command lines until now.
    pub fn runs(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        log.lines().map(|line| line.trim().to_owned()).collect()
    }
}
