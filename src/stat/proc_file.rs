//! `/proc/net/stat/nf_conntrack`: a header of names, then one line of hexadecimal counts for each CPU. Names and their number
//! depend on the kernel.

use super::counters::Counters;

/// Names of the file, and the names of ctnetlink for the same counters.
const ALIASES: [(&str, &str); 3] = [
    ("icmp_error", "error"),
    ("clashres", "clash_resolve"),
    ("chainlength", "chaintoolong"),
];
/// Columns in which kernels with `clashres` (5.10 and newer) always print 0.
const REMOVED_COLUMNS: [&str; 5] = ["searched", "new", "ignore", "delete", "delete_list"];

/// Counters of each line without `entries`, which is the number of entries of the whole table in every line. `None` if the
/// text is no such file.
pub fn parse(text: &str) -> Option<Vec<Counters>> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next()?.split_whitespace().collect();
    if header.first() != Some(&"entries") {
        return None;
    }
    let is_new = header.contains(&"clashres");
    let known = |name: &&str| *name != "entries" && !(is_new && REMOVED_COLUMNS.contains(name));
    let line = |line: &str| {
        let columns = header.iter().zip(line.split_whitespace());
        columns
            .filter(|(name, _)| known(name))
            .filter_map(|(name, hex)| {
                let alias = ALIASES.iter().find(|(old, _)| old == name);
                let count = u64::from_str_radix(hex, 16).ok()?;
                Some((alias.map_or(*name, |(_, now)| *now), count))
            })
            .collect()
    };
    Some(
        lines
            .filter(|text| !text.trim().is_empty())
            .map(line)
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "\
entries  searched found new invalid ignore delete delete_list insert insert_failed drop early_drop icmp_error  expect_new expect_create expect_delete
00000013  00000001 00000002 00000003 00000004 00000005 00000006 00000007 00000008 00000009 0000000a 0000000b 0000000c  0000000d 0000000e 0000000f
00000013  00000000 00000000 00000000 000000ff 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000  00000000 00000000 00000000
";
    const NEW: &str = "\
entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  expect_new expect_create expect_delete search_restart
0000019c  00000002 00000000 00000000 0000006e 00000000 00000000 00000003 00000000 00000000 00000000 00000000 00000000  00000000 00000000 00000000 00000001
";

    #[test]
    fn columns_are_read_by_name_and_absent_ones_are_not_zero() {
        let old = parse(OLD).unwrap();
        let total = Counters::from_iter(&old);
        assert_eq!(old.len(), 2);
        for (name, expected) in [
            ("entries", None),
            ("searched", Some(1)),
            ("new", Some(3)),
            ("invalid", Some(0x103)),
            ("insert_failed", Some(9)),
            ("drop", Some(10)),
            ("error", Some(12)),
            ("expect_delete", Some(15)),
            ("search_restart", None),
            ("clash_resolve", None),
            ("chaintoolong", None),
        ] {
            assert_eq!(total.get(name), expected, "{name}");
        }
        let new = Counters::from_iter(&parse(NEW).unwrap());
        for (name, expected) in [
            ("entries", None),
            ("clash_resolve", Some(2)),
            ("chaintoolong", Some(3)),
            ("invalid", Some(110)),
            ("search_restart", Some(1)),
            ("new", None),
            ("delete", None),
            ("ignore", None),
        ] {
            assert_eq!(new.get(name), expected, "{name}");
        }
    }

    #[test]
    fn unreadable_columns_are_left_out() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("something else\n1 2\n"), None);
        assert_eq!(parse("entries drop\n").unwrap(), []);
        let short = parse("entries drop odd_name insert\n1 2 3\n\nx y z 5\n").unwrap();
        assert_eq!(
            short,
            [
                Counters::from_iter([("drop", 2), ("odd_name", 3)]),
                Counters::from_iter([("insert", 5)]),
            ]
        );
    }
}
