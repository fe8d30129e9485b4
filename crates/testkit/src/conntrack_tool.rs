//! Output of `conntrack -L` in the form of ctk's JSON items, for a comparison field by field. Independent of ctk's code.

use serde_json::{Map, Value, json};

/// Parses one line of `-o extended,id` (with or without `labels`). Fields that the line lacks are null.
pub fn text(line: &str) -> Value {
    let mut words = line.split_whitespace();
    let mut next = || words.next().expect("a line begins with five words");
    let family = next();
    let _family_number = next();
    let protocol = next();
    let number: u64 = next().parse().expect("the protocol's number");
    let mut item = Item::new(family, protocol, number);
    for word in words {
        item.word(word);
    }
    item.finish()
}

struct Item {
    fields: Map<String, Value>,
    tuples: Vec<Map<String, Value>>,
}

impl Item {
    fn new(family: &str, protocol: &str, number: u64) -> Self {
        let mut fields = Map::new();
        for name in [
            "timeout",
            "state",
            "mark",
            "helper",
            "secctx",
            "id",
            "use",
            "labels",
            "delta-time",
            "zone_direction",
        ] {
            fields.insert(name.to_owned(), Value::Null);
        }
        for (name, value) in [
            ("family", json!(family)),
            ("protocol", json!(protocol)),
            ("protocol_number", json!(number)),
            ("zone", json!(0)),
            ("unreplied", json!(false)),
            ("fate", Value::Null),
        ] {
            fields.insert(name.to_owned(), value);
        }
        Item {
            fields,
            tuples: Vec::new(),
        }
    }

    fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    fn word(&mut self, word: &str) {
        match word.split_once('=') {
            Some((name, value)) => self.pair(name, value),
            None => match word {
                "[UNREPLIED]" => self.set("unreplied", true),
                "[ASSURED]" | "[OFFLOAD]" | "[HW_OFFLOAD]" => self.set("fate", word),
                _ => match word.parse::<u64>() {
                    Ok(timeout) => self.set("timeout", timeout),
                    Err(_) => self.set("state", word),
                },
            },
        }
    }

    fn pair(&mut self, name: &str, value: &str) {
        let number = || value.parse::<u64>().expect("a number");
        match name {
            "src" => {
                self.tuples.push(empty_tuple());
                self.in_tuple("src", json!(value));
            }
            "dst" => self.in_tuple(name, json!(value)),
            "sport" | "dport" | "type" | "code" | "packets" | "bytes" => {
                self.in_tuple(name, json!(number()));
            }
            // Id of an ICMP tuple, or of the entry, which follows `use=`.
            "id" if self.fields["use"].is_null() => self.in_tuple("icmp_id", json!(number())),
            "srckey" | "dstkey" => {
                let hex = value.strip_prefix("0x").expect("keys are hexadecimal");
                let key = u64::from_str_radix(hex, 16).expect("a key");
                self.in_tuple(name, json!(key));
            }
            "zone" => self.set("zone", number()),
            "zone-orig" | "zone-reply" => {
                self.set("zone", number());
                let direction = if name == "zone-orig" {
                    "original"
                } else {
                    "reply"
                };
                self.set("zone_direction", direction);
            }
            "mark" | "use" | "id" | "delta-time" => self.set(name, number()),
            "helper" | "secctx" | "labels" => self.set(name, value),
            other => panic!("conntrack prints {other:?}, which this test does not know"),
        }
    }

    fn in_tuple(&mut self, name: &str, value: Value) {
        let tuple = self.tuples.last_mut().expect("src= comes first");
        tuple.insert(name.to_owned(), value);
    }

    fn finish(mut self) -> Value {
        assert_eq!(self.tuples.len(), 2, "{:?}", self.fields);
        for name in ["reply", "original"] {
            let tuple = self.tuples.pop().expect("two of them");
            self.set(name, Value::Object(tuple));
        }
        Value::Object(self.fields)
    }
}

fn empty_tuple() -> Map<String, Value> {
    [
        "src", "dst", "sport", "dport", "type", "code", "icmp_id", "srckey", "dstkey", "packets",
        "bytes",
    ]
    .into_iter()
    .map(|name| (name.to_owned(), Value::Null))
    .collect()
}

/// Parses the document of `-o xml`. Fields that a flow lacks are null.
pub fn xml(document: &str) -> Vec<Value> {
    let root = Element::parse(document);
    assert_eq!(root.name, "conntrack");
    root.children.iter().map(xml_flow).collect()
}

fn xml_flow(flow: &Element) -> Value {
    let meta = |direction: &str| {
        let mut metas = flow.children.iter().filter(|child| child.name == "meta");
        let found = metas.find(|meta| meta.attribute("direction") == Some(direction));
        found.unwrap_or_else(|| panic!("no {direction} in {flow:?}"))
    };
    let original = meta("original");
    let layer = |name| original.child(name).expect("both layers are there");
    let attribute = |name, key| layer(name).attribute(key).expect("it says which");
    let number = attribute("layer4", "protonum").parse().expect("a number");
    let mut item = Item::new(
        attribute("layer3", "protoname"),
        attribute("layer4", "protoname"),
        number,
    );
    for direction in ["original", "reply"] {
        item.tuples.push(empty_tuple());
        xml_tuple(&mut item, meta(direction), direction);
    }
    let independent = meta("independent");
    for child in &independent.children {
        match child.name {
            "unreplied" => item.set("unreplied", true),
            "assured" => item.set("fate", "[ASSURED]"),
            "state" => item.set("state", child.text),
            "timeout" => item.set("timeout", child.number()),
            "deltatime" => item.set("delta-time", child.number()),
            "mark" | "use" | "id" | "zone" => item.set(child.name, child.number()),
            "labels" => {
                let names: Vec<&str> = child.children.iter().map(|label| label.text).collect();
                item.set("labels", names.join(","));
            }
            "helper" => item.set("helper", child.text),
            // Its form depends on the version of the tool. The text output has the age.
            "timestamp" => {}
            other => panic!("conntrack prints <{other}>, which this test does not know"),
        }
    }
    item.finish()
}

fn xml_tuple(item: &mut Item, meta: &Element, direction: &str) {
    let leaves = meta.children.iter().flat_map(|child| {
        let leaf = child.children.is_empty() && child.name == "zone";
        if leaf {
            std::slice::from_ref(child)
        } else {
            &child.children[..]
        }
    });
    for leaf in leaves {
        match leaf.name {
            "src" | "dst" => item.in_tuple(leaf.name, json!(leaf.text)),
            "zone" => {
                item.set("zone", leaf.number());
                item.set("zone_direction", direction);
            }
            "sport" | "dport" | "packets" | "bytes" | "srckey" | "dstkey" => {
                item.in_tuple(leaf.name, json!(leaf.number()));
            }
            other => panic!("conntrack prints <{other}>, which this test does not know"),
        }
    }
}

/// Element of the subset of XML that the tool writes: attributes in double quotes, text, no entities.
#[derive(Debug)]
struct Element<'t> {
    name: &'t str,
    attributes: Vec<(&'t str, &'t str)>,
    text: &'t str,
    children: Vec<Element<'t>>,
}

impl<'t> Element<'t> {
    fn parse(document: &'t str) -> Self {
        let (_, rest) = document.split_once("?>").expect("an XML declaration");
        let (root, rest) = Self::read(rest.trim_start());
        assert_eq!(rest.trim(), "");
        root
    }

    /// Parses the element at the start of `text`. Returns the rest, too.
    fn read(text: &'t str) -> (Self, &'t str) {
        let (tag, mut rest) = text
            .strip_prefix('<')
            .and_then(|tag| tag.split_once('>'))
            .unwrap_or_else(|| panic!("no tag: {:.80}", text));
        let empty = tag.ends_with('/');
        let mut words = tag.trim_end_matches('/').split(' ');
        let mut element = Element {
            name: words.next().expect("split gives one"),
            attributes: words
                .map(|word| word.split_once('=').expect("name=\"value\""))
                .map(|(name, value)| (name, value.trim_matches('"')))
                .collect(),
            text: "",
            children: Vec::new(),
        };
        if empty {
            return (element, rest);
        }
        loop {
            let start = rest.find('<').expect("the end tag is missing");
            if let Some(after) = rest[start..].strip_prefix("</") {
                if element.children.is_empty() {
                    element.text = &rest[..start];
                }
                let (name, after) = after.split_once('>').expect("an end tag");
                assert_eq!(name, element.name);
                return (element, after);
            }
            let (child, after) = Self::read(&rest[start..]);
            element.children.push(child);
            rest = after;
        }
    }

    fn attribute(&self, name: &str) -> Option<&'t str> {
        let mut all = self.attributes.iter();
        all.find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    fn number(&self) -> u64 {
        let text = self.text;
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => text.parse(),
        }
        .unwrap_or_else(|error| panic!("<{}>{text}: {error}", self.name))
    }
}
