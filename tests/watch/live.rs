//! `watch --live` on a terminal.

use testkit::ctk_binary::ctk_path;
use testkit::lab::{BACKENDS, add_node_address, cluster};
use testkit::mixed::{insert, to_dns};
use testkit::private_netns::private_netns;
use testkit::terminal::{Terminal, has_tmux};

#[test]
fn the_live_view_shows_the_stale_row_on_top_survives_a_resize_and_leaves_nothing_behind() {
    if !has_tmux() {
        return;
    }
    private_netns(|| {
        add_node_address();
        let file = cluster(&BACKENDS[1..]);
        let fine = (1..40).map(|port| to_dns(17, port, "10.244.2.33"));
        let mut flows: Vec<_> = fine.collect();
        flows.push(to_dns(17, 999, "10.244.1.7"));
        insert(&flows);
        let command = format!(
            "{} watch --live --interval 1s --cluster {}",
            ctk_path(),
            file.path()
        );
        let terminal = Terminal::run(&command);
        let on_top = |screen: &str| {
            let row = screen.lines().nth(2).unwrap_or_default();
            row.contains("shop/web-1:999 ") && row.contains("stale")
        };
        let screen = terminal.wait("the table", on_top);
        let lines: Vec<&str> = screen.lines().collect();
        assert!(
            lines[0].starts_with("40 entries, 1 stale, 0 of them refreshing"),
            "{screen}"
        );
        assert!(lines[1].starts_with("PROTO "), "{screen}");
        let rows = |screen: &str| {
            screen
                .lines()
                .filter(|line| line.starts_with("udp "))
                .count()
        };
        assert_eq!(rows(&screen), 17, "as many as there are lines:\n{screen}");
        assert!(terminal.is_alternate());

        // Narrower than the line of totals, and lower; then larger again.
        terminal.tmux(&["resize-window", "-x", "40", "-y", "8"]);
        let small = terminal.wait("the smaller table", |screen| {
            rows(screen) == 5
                && screen
                    .lines()
                    .next()
                    .is_some_and(|line| line.starts_with("40 ent"))
        });
        assert!(
            small.lines().nth(1).unwrap().starts_with("PROTO"),
            "{small}"
        );
        terminal.tmux(&["resize-window", "-x", "140", "-y", "30"]);
        terminal.wait("the larger table", |screen| {
            rows(screen) == 27 && on_top(screen)
        });
        // Ended entries disappear.
        crate::delete(|flow| flow.original.sport() == Some(999));
        terminal.wait("the end", |screen| {
            screen.starts_with("39 entries, 0 stale")
        });
        terminal.tmux(&["send-keys", "q"]);
        terminal.assert_restored();
    });
}

#[test]
fn notes_about_the_source_stay_below_the_live_view() {
    if !has_tmux() {
        return;
    }
    private_netns(|| {
        add_node_address();
        let file = cluster(&BACKENDS[1..]);
        insert(&[
            to_dns(17, 998, "10.244.2.33"),
            to_dns(17, 999, "10.244.1.7"),
        ]);
        let command = format!(
            "{} watch --live --interval 1s --cluster {}",
            ctk_path(),
            file.path()
        );
        let terminal = Terminal::run(&command);
        terminal.wait("the table", |screen| screen.starts_with("2 entries"));
        std::fs::write(file.path(), "{").unwrap();
        let outcome = "ctk: the new cluster file is not used";
        let is_below = |screen: &str| {
            screen
                .lines()
                .last()
                .is_some_and(|l| l.starts_with(outcome))
        };
        terminal.wait("the note", is_below);
        // The note is still there after a repaint.
        crate::delete(|flow| flow.original.sport() == Some(999));
        let screen = terminal.wait("the end", |screen| screen.starts_with("1 entry,"));
        assert!(is_below(&screen), "{screen}");
        terminal.tmux(&["send-keys", "q"]);
        terminal.wait("the note on the terminal itself", |screen| {
            !screen.contains("1 entry") && screen.contains(outcome)
        });
    });
}

#[test]
fn ctrl_c_ends_the_live_view_as_q_does() {
    if !has_tmux() {
        return;
    }
    private_netns(|| {
        let terminal = Terminal::run(&format!("{} watch --live --cluster none", ctk_path()));
        terminal.wait("the table", |screen| screen.starts_with("0 entries"));
        terminal.tmux(&["send-keys", "C-c"]);
        terminal.assert_restored();
    });
}
