//! Bars that show a share as a length.

/// Characters of bars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Glyphs {
    /// Unicode block elements: eight steps per character.
    #[default]
    Blocks,
    /// `#`, for terminals and mails without block elements.
    Ascii,
}

impl Glyphs {
    /// Glyphs for the value of `--ascii`.
    pub fn of(ascii: bool) -> Self {
        if ascii { Glyphs::Ascii } else { Glyphs::Blocks }
    }
}

/// Blocks that fill one to seven eighths of a character.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// Bar of a share from 0 to 1, at most `width` characters long, without padding. Rounding never makes the bar of a share
/// above 0 empty, nor the bar of a share below 1 full.
pub fn bar(share: f64, width: usize, glyphs: Glyphs) -> String {
    let steps = match glyphs {
        Glyphs::Blocks => 8,
        Glyphs::Ascii => 1,
    };
    let full = width * steps;
    let filled = match share {
        // NaN gives an empty bar, too.
        share if share.is_nan() || share <= 0.0 => 0,
        share if share >= 1.0 => full,
        // Rounded to the nearest step.
        share => ((share * full as f64 + 0.5) as usize)
            .min(full.saturating_sub(1))
            .max(1)
            .min(full),
    };
    match glyphs {
        Glyphs::Ascii => "#".repeat(filled),
        Glyphs::Blocks => {
            let part = (filled % steps).checked_sub(1);
            let part = part.and_then(|eighths| EIGHTHS.get(eighths));
            "█".repeat(filled / steps) + &part.map_or_else(String::new, char::to_string)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_length_of_a_bar_is_proportional_to_the_share() {
        for (share, blocks, ascii) in [
            (0.0, "", ""),
            (0.001, "▏", "#"),
            (0.25, "██▌", "###"),
            (0.3125, "███▏", "###"),
            (0.5, "█████", "#####"),
            (0.9999, "█████████▉", "#########"),
            (1.0, "██████████", "##########"),
            (7.0, "██████████", "##########"),
            (-1.0, "", ""),
            (f64::NAN, "", ""),
        ] {
            assert_eq!(bar(share, 10, Glyphs::Blocks), blocks, "{share}");
            assert_eq!(bar(share, 10, Glyphs::Ascii), ascii, "{share}");
        }
        assert_eq!(bar(0.5, 0, Glyphs::Blocks), "");
        assert_eq!(bar(0.5, 1, Glyphs::Ascii), "#");
    }

    #[test]
    fn ascii_bars_are_ascii() {
        assert!(bar(0.37, 33, Glyphs::of(true)).is_ascii());
        assert!(!bar(0.37, 33, Glyphs::of(false)).is_ascii());
    }

    proptest! {
        #[test]
        fn a_larger_share_is_never_a_shorter_bar(a in 0.0..=1.0, b in 0.0..=1.0, width in 0usize..60) {
            let (small, large) = if a < b { (a, b) } else { (b, a) };
            for glyphs in [Glyphs::Blocks, Glyphs::Ascii] {
                let (small, large) = (bar(small, width, glyphs), bar(large, width, glyphs));
                prop_assert!(small.chars().count() <= large.chars().count());
                prop_assert!(large.chars().count() <= width);
            }
        }
    }
}
