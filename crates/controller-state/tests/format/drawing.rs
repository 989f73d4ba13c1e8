//! Draws a structure, eight bytes to a row.

use super::document::Table;

/// Characters of a byte's box, with its left edge.
const CELL: usize = 10;
/// Rows of a field that are drawn before the rest of it is left out.
const ROWS_MAX: u64 = 2;

struct Part {
    bytes: u64,
    label: String,
}

/// The drawing, without the lines around it.
pub fn draw(table: &Table) -> String {
    let mut rows: Vec<(u64, Vec<Part>)> = Vec::new();
    for row in &table.rows {
        let (offset, size, name) = (row.number(0), row.number(1), &row[2]);
        let mut at = offset;
        while at < offset + size {
            let left = offset + size - at;
            let first = at == offset;
            let mut label = if first {
                name.clone()
            } else {
                format!("{name} (continued)")
            };
            let bytes;
            let shown;
            if at % 8 == 0 && left > 8 * ROWS_MAX {
                // All of the rest as one box.
                bytes = left / 8 * 8;
                shown = 8;
                label = format!("{label}: {bytes} bytes ...");
            } else {
                bytes = left.min(8 - at % 8);
                shown = bytes;
            }
            let part = Part {
                bytes: shown,
                label,
            };
            match rows.last_mut() {
                Some((_, parts)) if at % 8 != 0 => parts.push(part),
                _ => rows.push((at, vec![part])),
            }
            at += bytes;
        }
    }
    let mut out = String::from("       ");
    for byte in 0..8 {
        out.push_str(&format!(" {byte:<width$}", width = CELL - 1));
    }
    let mut out = out.trim_end().to_owned();
    out.push('\n');
    for (offset, parts) in &rows {
        out.push_str(&edge());
        let wrapped: Vec<Vec<String>> = parts.iter().map(wrap).collect();
        let height = wrapped.iter().map(Vec::len).max().unwrap_or(1);
        for line in 0..height {
            let number = if line == 0 {
                format!("{offset:6} ")
            } else {
                " ".repeat(7)
            };
            out.push_str(&number);
            for (part, text) in parts.iter().zip(&wrapped) {
                let width = part.bytes as usize * CELL - 1;
                let text = text.get(line).map_or("", String::as_str);
                out.push_str(&format!("|{text:^width$}"));
            }
            // A structure may end within a row.
            out.push_str("|\n");
        }
    }
    out.push_str(edge().trim_end_matches('\n'));
    out
}

fn edge() -> String {
    format!(
        "       {}+\n",
        format!("+{}", "-".repeat(CELL - 1)).repeat(8)
    )
}

/// A label in lines that fit, broken behind underscores and spaces.
fn wrap(part: &Part) -> Vec<String> {
    let width = part.bytes as usize * CELL - 1;
    let mut lines = vec![String::new()];
    for piece in part.label.split_inclusive(['_', ' ']) {
        let fits = lines
            .last()
            .is_some_and(|line| line.len() + piece.trim_end().len() <= width);
        if !fits {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(piece);
        }
    }
    for line in &mut lines {
        line.truncate(line.trim_end().len());
        assert!(
            line.len() <= width,
            "{line} is too long a name for a drawing"
        );
    }
    lines.retain(|line| !line.is_empty());
    lines
}
