//! What was odd in a source, grouped so that 50,000 oddities are still a few lines.

/// How many names a line shows before it only counts.
const SHOWN: usize = 3;

#[derive(Debug, Default)]
pub(crate) struct Warnings {
    groups: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    what: &'static str,
    count: usize,
    first: Vec<String>,
}

impl Warnings {
    /// Counts one more of `what`; `detail` is asked only while there is room to show it.
    pub fn note(&mut self, what: &'static str, detail: impl FnOnce() -> String) {
        let position = self.groups.iter().position(|group| group.what == what);
        let at = position.unwrap_or_else(|| {
            self.groups.push(Group {
                what,
                count: 0,
                first: Vec::new(),
            });
            self.groups.len() - 1
        });
        if let Some(group) = self.groups.get_mut(at) {
            group.count += 1;
            if group.first.len() < SHOWN {
                group.first.push(harmless(&detail()));
            }
        }
    }

    /// One line a group: `unreadable items (5): Pod a/b, Pod a/c, Pod a/d and 2 more`.
    pub fn into_lines(self) -> Vec<String> {
        self.groups.into_iter().map(Group::line).collect()
    }
}

impl Group {
    fn line(self) -> String {
        let more = match self.count.saturating_sub(self.first.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let names = self.first.join(", ");
        format!("{} ({}): {names}{more}", self.what, self.count)
    }
}

/// Names come from a file: no control character of theirs may reach a terminal, and no line may be endless.
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
    fn many_oddities_make_one_counted_line() {
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
