//! Small tables of examples below a finding.

use serde_json::Value;

/// Upper bound of the rows of one finding.
pub const MAX_ROWS: usize = 3;

/// A few rows. Columns without any value are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    pub columns: Vec<String>,
    /// Cells in the order of the columns; `None` is a value that is not known.
    pub cells: Vec<Vec<Option<String>>>,
}

impl Rows {
    /// Takes the first `MAX_ROWS` rows.
    pub fn new(columns: &[&str], rows: impl IntoIterator<Item = Vec<Option<String>>>) -> Self {
        let rows: Vec<_> = rows.into_iter().take(MAX_ROWS).collect();
        let kept: Vec<usize> = (0..columns.len())
            .filter(|at| {
                rows.iter()
                    .any(|row| row.get(*at).is_some_and(Option::is_some))
            })
            .collect();
        let pick = |row: &Vec<Option<String>>| {
            let cells = kept.iter().map(|at| row.get(*at).cloned().flatten());
            cells.collect()
        };
        Rows {
            columns: kept
                .iter()
                .filter_map(|at| Some((*columns.get(*at)?).to_owned()))
                .collect(),
            cells: rows.iter().map(pick).collect(),
        }
    }

    /// Rows from a list of evidence: objects with the same keys, or values, for which `name` is the column.
    pub fn of_list(name: &str, members: &[Value]) -> Self {
        let keys: Vec<String> = match members.first() {
            Some(Value::Object(fields)) => fields.keys().cloned().collect(),
            _ => vec![name.to_owned()],
        };
        let row = |member: &Value| match member {
            Value::Object(fields) => keys
                .iter()
                .map(|key| fields.get(key).and_then(text))
                .collect(),
            plain => vec![text(plain)],
        };
        let headings: Vec<String> = keys.iter().map(|key| heading(key)).collect();
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        Rows::new(&headings, members.iter().map(row))
    }

    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }
}

fn heading(key: &str) -> String {
    key.replace('_', " ").to_uppercase()
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(members) => {
            let members: Vec<String> = members.iter().filter_map(text).collect();
            Some(members.join(" "))
        }
        Value::Number(number) if number.is_f64() => number.as_f64().map(crate::percent::rounded),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_becomes_three_rows_and_columns_without_values_are_left_out() {
        let members: Vec<Value> = (0..5)
            .map(|n| json!({"endpoint": n.to_string(), "of_all": 88.888, "packets": null}))
            .collect();
        let rows = Rows::of_list("endpoints", &members);
        assert_eq!(rows.columns, ["ENDPOINT", "OF ALL"]);
        assert_eq!(rows.cells.len(), MAX_ROWS);
        assert_eq!(
            rows.cells[2],
            [Some("2".to_owned()), Some("88.9".to_owned())]
        );
        let rows = Rows::of_list("differing", &[json!("a")]);
        assert_eq!(
            (rows.columns, rows.cells),
            (
                vec!["DIFFERING".to_owned()],
                vec![vec![Some("a".to_owned())]]
            )
        );
        assert!(Rows::of_list("x", &[]).is_empty());
    }
}
