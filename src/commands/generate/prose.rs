//! The descriptions of the manual pages: one file a command, in man(7) macros, for somebody in an incident: the shortest
//! path first. A command without a file is described by the text of its `--help`.

/// The description of a command by its name; `ctk` is the program itself.
pub fn of(command: &str) -> Option<&'static str> {
    let (_, text) = PROSE.iter().find(|(name, _)| *name == command)?;
    Some(text)
}

const PROSE: [(&str, &str); 10] = [
    ("ctk", include_str!("ctk.roff")),
    ("ls", include_str!("ls.roff")),
    ("watch", include_str!("watch.roff")),
    ("purge", include_str!("purge.roff")),
    ("restore", include_str!("restore.roff")),
    ("top", include_str!("top.roff")),
    ("svc", include_str!("svc.roff")),
    ("stat", include_str!("stat.roff")),
    ("doctor", include_str!("doctor.roff")),
    ("demo", include_str!("demo.roff")),
];
