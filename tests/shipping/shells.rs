//! Completion in the real shells, in a terminal, with names that an earlier command cached.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::{Home, has, has_namespaces, repository};
use testkit::tools::Outcome;

/// Longer than a shell needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Shell in a terminal: tmux with a server of this test.
struct Shell {
    home: Home,
}

impl Shell {
    /// `start` runs in the home and becomes an interactive shell with the prompt `$ `.
    fn start(home: Home, start: &str) -> Self {
        let shell = Shell { home };
        shell.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "100",
            "-y",
            "30",
            start,
        ]);
        shell.wait(|screen| screen.contains("ready"));
        shell
    }

    #[track_caller]
    fn tmux(&self, args: &[&str]) -> String {
        let mut tmux = self.home.command("tmux");
        tmux.arg("-S")
            .arg(self.home.path().join("socket"))
            .args(args);
        Outcome::of(tmux.output().expect("tmux is installed"))
            .exits(0)
            .stdout
    }

    #[track_caller]
    fn wait(&self, enough: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.tmux(&["capture-pane", "-p"]);
            if enough(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "it did not come:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn keys(&self, keys: &[&str]) {
        let mut all = vec!["send-keys"];
        all.extend(keys);
        self.tmux(&all);
    }

    /// Types, presses TAB, and waits for this text on the line.
    #[track_caller]
    fn completes(&self, typed: &str, wanted: &str) {
        self.keys(&["-l", typed]);
        self.wait(|screen| screen.contains(typed));
        self.keys(&["Tab"]);
        self.wait(|screen| screen.contains(wanted));
        self.clear();
    }

    /// Leaves the line and clears the screen. Repeats that, because keys are lost while a shell completes.
    fn clear(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.keys(&["C-c"]);
            self.keys(&["C-l"]);
            std::thread::sleep(Duration::from_millis(300));
            let screen = self.tmux(&["capture-pane", "-p"]);
            if !screen.contains("ctk") {
                return;
            }
            assert!(Instant::now() < deadline, "it stays:\n{screen}");
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let socket = self.home.path().join("socket");
        let _ = Command::new("tmux")
            .arg("-S")
            .arg(socket)
            .arg("kill-server")
            .output();
    }
}

/// Home in which the demo ran once, so that names are known.
fn home_with_names() -> Home {
    let home = Home::new("ctk");
    let output = home.command("ctk").args(["demo", "--", "ls"]).output();
    Outcome::of(output.unwrap()).exits(0);
    home
}

fn install(home: &Home, script: &str, place: &str) {
    let place = home.path().join(place);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::copy(repository("completions").join(script), place).unwrap();
}

fn can_run(shell: &str) -> bool {
    has(shell, shell) && has("tmux", shell) && has_namespaces(shell)
}

fn offers_names_and_words(shell: &Shell) {
    // Two Services begin so: both are shown, at the latest after a second TAB.
    shell.keys(&["-l", "ctk ls --svc kube"]);
    shell.wait(|screen| screen.contains("ctk ls --svc kube"));
    shell.keys(&["Tab"]);
    shell.keys(&["Tab"]);
    shell.wait(|screen| screen.contains("kube-dns") && screen.contains("kubernetes"));
    shell.clear();
    for (typed, wanted) in [
        ("ctk ls --svc kube-d", "--svc kube-dns"),
        ("ctk ls --svc kube-sys", "--svc kube-system/kube-dns"),
        ("ctk ls --stale -n sho", "-n shop"),
        ("ctk purge --pod sfl", "--pod sflow-0"),
        ("ctk ls --reason misd", "--reason misdelivery"),
        ("ctk watch --verdict ok,sta", "--verdict ok,stale"),
        ("ctk ls --columns verdict,endpoint.serv", "endpoint.serving"),
        ("ctk ls --state time_w", "--state time_wait"),
        ("ctk pur", "ctk purge"),
        ("ctk ls --exit-c", "--exit-code"),
    ] {
        shell.completes(typed, wanted);
    }
}

#[test]
fn bash_completes_services_by_name() {
    let common = "/usr/share/bash-completion/bash_completion";
    if !can_run("bash") || !crate::told(fs::exists(common).unwrap(), "bash", "no bash-completion") {
        return;
    }
    let home = home_with_names();
    // Loaded when it is first needed, as an installed script is.
    install(
        &home,
        "ctk.bash",
        ".local/share/bash-completion/completions/ctk",
    );
    let start = format!("PS1='$ '\nHISTFILE=\n. {common}\necho ready\n");
    fs::write(home.path().join("rc"), start).unwrap();
    offers_names_and_words(&Shell::start(home, "bash --noprofile --rcfile rc -i"));
}

#[test]
fn zsh_completes_services_by_name() {
    if !can_run("zsh") {
        return;
    }
    let home = home_with_names();
    install(&home, "_ctk", "site/_ctk");
    let start = "PS1='$ '\nfpath=(~/site $fpath)\nautoload -Uz compinit\ncompinit -u\necho ready\n";
    fs::write(home.path().join(".zshrc"), start).unwrap();
    offers_names_and_words(&Shell::start(home, "zsh -i"));
}

#[test]
fn fish_completes_services_by_name() {
    if !can_run("fish") {
        return;
    }
    let home = home_with_names();
    install(&home, "ctk.fish", ".config/fish/completions/ctk.fish");
    let start =
        "function fish_prompt; echo -n '$ '; end\nfunction fish_greeting; echo ready; end\n";
    fs::write(home.path().join(".config/fish/config.fish"), start).unwrap();
    offers_names_and_words(&Shell::start(home, "fish -i"));
}
