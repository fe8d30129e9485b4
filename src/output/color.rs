//! Colour of terminal output: decided once and passed as a [`Palette`].

use std::ffi::OsString;
use std::io::Write;

use owo_colors::Style as Paint;

/// Value of `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorChoice {
    #[default]
    Auto,
    Always,
    Never,
}

/// Meaning of a cell; the palette gives it a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    #[default]
    Plain,
    Heading,
    /// A healthy state.
    Good,
    /// A fault.
    Bad,
    /// A possible fault.
    Warning,
    /// Unimportant.
    Faint,
}

/// Colours of cells, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Palette {
    coloured: bool,
}

impl Palette {
    pub const PLAIN: Palette = Palette { coloured: false };

    /// Decides from the flag, then `CLICOLOR_FORCE`, `NO_COLOR`, `TERM=dumb`, and whether the output is a terminal.
    /// `env` reads one environment variable.
    pub fn decide(
        choice: ColorChoice,
        env: impl Fn(&str) -> Option<OsString>,
        is_terminal: bool,
    ) -> Palette {
        let set = |name| env(name).is_some_and(|value| !value.is_empty());
        let coloured = match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto
                if set("CLICOLOR_FORCE") && env("CLICOLOR_FORCE") != Some("0".into()) =>
            {
                true
            }
            ColorChoice::Auto if set("NO_COLOR") => false,
            ColorChoice::Auto => is_terminal && env("TERM") != Some("dumb".into()),
        };
        Palette { coloured }
    }

    /// [`Palette::decide`] with the environment of this process.
    pub fn of_environment(choice: ColorChoice, is_terminal: bool) -> Palette {
        Palette::decide(choice, |name| std::env::var_os(name), is_terminal)
    }

    pub fn is_coloured(self) -> bool {
        self.coloured
    }

    /// Begins text in a style. Padding is written after [`Palette::end`], so that it has no background.
    #[inline]
    pub fn begin(self, out: &mut Vec<u8>, style: Style) {
        if self.paints(style) {
            // Writing to a buffer cannot fail.
            let _ = write!(out, "{}", paint(style).prefix_formatter());
        }
    }

    /// Ends text begun by [`Palette::begin`].
    #[inline]
    pub fn end(self, out: &mut Vec<u8>, style: Style) {
        if self.paints(style) {
            let _ = write!(out, "{}", paint(style).suffix_formatter());
        }
    }

    fn paints(self, style: Style) -> bool {
        self.coloured && style != Style::Plain
    }
}

fn paint(style: Style) -> Paint {
    match style {
        Style::Plain => Paint::new(),
        Style::Heading => Paint::new().bold(),
        Style::Good => Paint::new().green(),
        Style::Bad => Paint::new().red().bold(),
        Style::Warning => Paint::new().yellow(),
        Style::Faint => Paint::new().dimmed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_follows_flag_then_environment_then_terminal() {
        use ColorChoice::{Always, Auto, Never};
        type Case<'a> = (ColorChoice, &'a [(&'a str, &'a str)], bool, bool);
        let cases: [Case; 12] = [
            (Auto, &[], true, true),
            (Auto, &[], false, false),
            (Auto, &[("NO_COLOR", "1")], true, false),
            (Auto, &[("NO_COLOR", "")], true, true),
            (Auto, &[("TERM", "dumb")], true, false),
            (Auto, &[("TERM", "xterm")], true, true),
            (Auto, &[("CLICOLOR_FORCE", "1")], false, true),
            (Auto, &[("CLICOLOR_FORCE", "0")], false, false),
            (
                Auto,
                &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1"), ("TERM", "dumb")],
                false,
                true,
            ),
            (Always, &[("NO_COLOR", "1"), ("TERM", "dumb")], false, true),
            (Never, &[("CLICOLOR_FORCE", "1")], true, false),
            (Auto, &[("CLICOLOR_FORCE", "")], false, false),
        ];
        for (choice, env, terminal, expected) in cases {
            let read = |name: &str| {
                env.iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| OsString::from(value))
            };
            let palette = Palette::decide(choice, read, terminal);
            assert_eq!(
                palette.is_coloured(),
                expected,
                "{choice:?} {env:?} {terminal}"
            );
        }
    }

    #[test]
    fn a_painted_cell_ends_its_colour() {
        let paint = |palette: Palette| {
            let mut out = Vec::new();
            palette.begin(&mut out, Style::Bad);
            out.extend_from_slice(b"stale");
            palette.end(&mut out, Style::Bad);
            out
        };
        let out = paint(Palette { coloured: true });
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with("\u{1b}[") && text.ends_with("stale\u{1b}[0m"),
            "{text:?}"
        );
        assert_eq!(paint(Palette::PLAIN), b"stale");
    }
}
