//! Oddities of a source, grouped so that 50,000 of them take a few lines.

/// Number of names on a line; further ones are only counted.
const MAX_NAMES_SHOWN: usize = 3;

#[derive(Debug, Default)]
pub(crate) struct Warnings {
    groups: Vec<WarningGroup>,
}

#[derive(Debug)]
struct WarningGroup {
    what: &'static str,
    count: usize,
    first: Vec<String>,
}

impl Warnings {
    /// Counts one occurrence of `what`. `detail` is called only while the line has space for it.
    pub fn note(&mut self, what: &'static str, detail: impl FnOnce() -> String) {
        let position = self.groups.iter().position(|group| group.what == what);
        let at = position.unwrap_or_else(|| {
            self.groups.push(WarningGroup {
                what,
                count: 0,
                first: Vec::new(),
            });
            self.groups.len() - 1
        });
        if let Some(group) = self.groups.get_mut(at) {
            group.count += 1;
            if group.first.len() < MAX_NAMES_SHOWN {
                group.first.push(harmless(&detail()));
            }
        }
    }

    /// Returns one line for each group: `unreadable items (5): Pod a/b, Pod a/c, Pod a/d and 2 more`.
    pub fn into_lines(self) -> Vec<String> {
        self.groups.into_iter().map(WarningGroup::line).collect()
    }
}

impl WarningGroup {
    fn line(self) -> String {
        let more = match self.count.saturating_sub(self.first.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let names = self.first.join(", ");
        format!("{} ({}): {names}{more}", self.what, self.count)
    }
}

/// Replaces control characters and bounds the length: names come from a file and may reach a terminal.
fn harmless(text: &str) -> String {
    text.chars()
        .take(200)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_oddities_of_one_kind_become_one_counted_line() {
        let mut warnings = Warnings::default();
        for i in 0..10 {
            warnings.note("odd", || format!("x{i}"));
        }
        warnings.note("other", || "esc\u{1b}[2J".to_owned());
        assert_eq!(
            warnings.into_lines(),
            [
                "odd (10): x0, x1, x2 and 7 more",
                "other (1): esc\u{fffd}[2J"
            ]
        );
    }
}
