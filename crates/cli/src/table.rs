//! Aligned columns for people.

use std::io::{self, Write};

use anstyle::Style;

use crate::human::FAINT;

/// A cell: its text and style.
pub(crate) struct Cell {
    text: String,
    style: Style,
    right: bool,
}

impl Cell {
    /// Text, aligned to the left.
    pub(crate) fn text(text: impl ToString, style: Style) -> Cell {
        Cell { text: text.to_string(), style, right: false }
    }

    /// Text, aligned to the right.
    pub(crate) fn right(text: String, style: Style) -> Cell {
        Cell { text, style, right: true }
    }

    /// A count, aligned to the right; a zero is dimmed.
    pub(crate) fn count(count: u64, style: Style) -> Cell {
        Cell { text: count.to_string(), style: if count == 0 { FAINT } else { style }, right: true }
    }
}

/// Writes a heading and rows with as many cells.
pub(crate) fn write(out: &mut dyn Write, heading: &[&str], rows: &[Vec<Cell>]) -> io::Result<()> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].text.chars().count());
        cells.chain([heading[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let right = |column: usize| rows.first().is_some_and(|row| row[column].right);
    for (column, title) in heading.iter().enumerate() {
        pad(out, title, FAINT, right(column), widths[column], column + 1 == heading.len())?;
    }
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            pad(out, &cell.text, cell.style, cell.right, widths[column], column + 1 == heading.len())?;
        }
    }
    Ok(())
}

fn pad(
    out: &mut dyn Write,
    text: &str,
    style: Style,
    right: bool,
    width: usize,
    last: bool,
) -> io::Result<()> {
    let fill = width - text.chars().count();
    let (before, after) = if right { (fill, 0) } else { (0, fill) };
    write!(out, "{:before$}{style}{text}{style:#}", "")?;
    if last { writeln!(out) } else { write!(out, "{:after$}  ", "") }
}
