//! Modules of a crate and their imports, read from the source: enough of Rust's paths to see who names whom.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use regex::Regex;

/// Code by module path (`cli::purge`), without unit tests and comments.
pub struct Modules(BTreeMap<String, String>);

/// Module paths, each with those that it names; a module's own parents and parts aside.
pub type Dependencies = BTreeMap<String, BTreeSet<String>>;

impl Modules {
    /// Every module below a folder of the repository.
    pub fn read(folder: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let mut files = Vec::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a source folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let name = path.strip_prefix(&root).expect("below the root");
                    let text = fs::read_to_string(&path).expect("a source file");
                    files.push((name.to_string_lossy().into_owned(), text));
                }
            }
        }
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        Self::of(&files)
    }

    /// Modules of these files, by their names below the root.
    pub fn of(files: &[(&str, &str)]) -> Self {
        let is_test = |name: &str| {
            let mut parts = name.split('/');
            parts.any(|part| {
                part.trim_end_matches(".rs").ends_with("tests") || part.starts_with("testing")
            })
        };
        let modules = files.iter().filter(|(name, _)| !is_test(name));
        Modules(
            modules
                .map(|(name, text)| (path_of(name), code(text)))
                .collect(),
        )
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(path, code)| (path.as_str(), code.as_str()))
    }

    pub fn dependencies(&self) -> Dependencies {
        let imports = Regex::new(r"\buse\s+([^;]+);").expect("a pattern");
        let paths = Regex::new(r"\b(?:crate|super|self)(?:::\w+)+").expect("a pattern");
        let mut all = Dependencies::new();
        for (module, code) in &self.0 {
            let mut named = Vec::new();
            for import in imports.captures_iter(code) {
                let tree: String = import[1].split_whitespace().collect::<Vec<_>>().join(" ");
                expand("", &tree, &mut named);
            }
            let rest = imports.replace_all(code, "");
            named.extend(
                paths
                    .find_iter(&rest)
                    .map(|found| found.as_str().to_owned()),
            );
            let known = named.iter().filter_map(|path| self.resolve(module, path));
            let others =
                known.filter(|other| !is_within(module, other) && !is_within(other, module));
            all.insert(module.clone(), others.collect());
        }
        all
    }

    /// The module that a path names, seen from `module`: its longest part that is one.
    fn resolve(&self, module: &str, path: &str) -> Option<String> {
        let path = path.split(" as ").next().unwrap_or_default().trim();
        let mut segments: Vec<&str> = path.split("::").collect();
        let mut base: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
        match segments.first().copied() {
            Some("crate") => base.clear(),
            Some("super") => {
                while segments.first() == Some(&"super") {
                    base.pop()?;
                    segments.remove(0);
                }
                segments.insert(0, "");
            }
            Some("self") => {}
            // A part of this module, or another crate.
            _ => segments.insert(0, ""),
        }
        let relative =
            segments.first().is_some_and(|first| first.is_empty()) && !path.starts_with("super");
        base.extend(segments.into_iter().skip(1));
        let own = base.len();
        (1..=own)
            .rev()
            .map(|length| base[..length].join("::"))
            .find(|name| self.0.contains_key(name))
            .filter(|name| !relative || is_within(name, module))
    }
}

/// `a/b.rs` and `a/b/mod.rs` are `a::b`; the root is the empty path.
fn path_of(name: &str) -> String {
    let mut parts: Vec<&str> = name.trim_end_matches(".rs").split('/').collect();
    if matches!(parts.last(), Some(&"mod" | &"lib" | &"main")) {
        parts.pop();
    }
    parts.join("::")
}

fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// `name` is `module`, or a part of it. The root has no parts here.
fn is_within(name: &str, module: &str) -> bool {
    name == module || module.is_empty() || name.starts_with(&format!("{module}::"))
}

/// `a::{b, c::{d, e}}` as the paths in it.
fn expand(prefix: &str, tree: &str, into: &mut Vec<String>) {
    let (mut depth, mut start) = (0, 0);
    let mut parts = Vec::new();
    for (at, letter) in tree.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&tree[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&tree[start..]);
    for part in parts
        .into_iter()
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        match part.split_once('{') {
            Some((head, rest)) => {
                let inner = rest.trim_end().strip_suffix('}').unwrap_or(rest);
                expand(&format!("{prefix}{}", head.trim()), inner, into);
            }
            None => into.push(format!("{prefix}{part}")),
        }
    }
}

/// Groups of modules in which each leads to each other, sorted.
pub fn cycles(dependencies: &Dependencies) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = dependencies
        .keys()
        .map(|module| (module.as_str(), reach(dependencies, module)))
        .collect();
    let mut found = BTreeSet::new();
    for (module, there) in &reached {
        let back = there
            .iter()
            .filter(|other| reached.get(*other).is_some_and(|of| of.contains(module)));
        let group: BTreeSet<String> = back.map(|other| (*other).to_owned()).collect();
        if group.len() > 1 {
            found.insert(group.into_iter().collect::<Vec<_>>());
        }
    }
    found.into_iter().collect()
}

fn reach<'d>(dependencies: &'d Dependencies, from: &str) -> BTreeSet<&'d str> {
    let mut seen = BTreeSet::new();
    let mut ahead: Vec<&str> = vec![from];
    while let Some(module) = ahead.pop() {
        for next in dependencies.get(module).into_iter().flatten() {
            if seen.insert(next.as_str()) {
                ahead.push(next);
            }
        }
    }
    seen
}
