//! `ctk generate`: writes manuals and completion scripts from the definition of the command line. Hidden, because only builders
//! of packages need it. The results are committed in `man/` and `completions/`; a test fails when they are outdated.

mod man;

use crate::args::generate::{Artifact, GenerateArgs};
use std::io;
use std::path::Path;

use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use crate::error::{CommandError, ExitStatus};

use crate::shell;

pub fn run(args: &GenerateArgs) -> Result<ExitStatus, CommandError> {
    let written = match args.artifact {
        Artifact::Man => man::pages(),
        Artifact::Completions => completions(),
    }
    .and_then(|files| write_all(&args.folder, &files));
    let failed = |error: io::Error| CommandError::failed(args.folder.display()).with_source(error);
    written.map_err(failed)?;
    Ok(ExitStatus::Done)
}

/// Name and content of a file.
type NewFile = (String, Vec<u8>);

fn write_all(folder: &Path, files: &[NewFile]) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    files
        .iter()
        .try_for_each(|(name, text)| std::fs::write(folder.join(name), text))
}

/// Scripts that make a shell ask `ctk` for candidates.
fn completions() -> io::Result<Vec<NewFile>> {
    let shells: [(&str, &dyn EnvCompleter); 3] =
        [("ctk.bash", &Bash), ("_ctk", &Zsh), ("ctk.fish", &Fish)];
    let mut files = Vec::new();
    for (name, shell) in shells {
        let mut text = Vec::new();
        shell.write_registration(shell::VARIABLE, "ctk", "ctk", "ctk", &mut text)?;
        let mut text = String::from_utf8_lossy(&text).trim().to_owned();
        text.push('\n');
        if name == "_ctk" {
            // zsh runs the whole file as the completion function when it is first needed.
            text.push_str("\nif [[ ${funcstack[1]} == _ctk ]]; then\n    _clap_dynamic_completer_ctk \"$@\"\nfi\n");
        }
        files.push((name.to_owned(), text.into_bytes()));
    }
    Ok(files)
}
