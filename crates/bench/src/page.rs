//! A page in HTML that needs nothing else: what chapters found, and what operations do, as plots and tables.

use crate::chapter::{BYSTANDER, Chapter, LONGEST, Row, wanted};
use crate::fold::Found;
use crate::outcome::Outcome;
use crate::step::Steps;
use plotters::prelude::*;
use std::fmt::Write;

/// Pixels of a row of a plot, of its names, and of all of it.
const LINE: i32 = 18;
const NAMES: i32 = 470;
const WIDTH: i32 = 1000;
const BARS: f64 = (WIDTH - NAMES - 60) as f64;

const STYLE: &str = "body{font:15px sans-serif;max-width:1060px;margin:2em auto;color:#222}\
table{border-collapse:collapse;font-size:13px}td,th{padding:2px 8px;border-bottom:1px solid #ddd}\
td.n{text-align:right}td.low{color:#b3261e}svg{max-width:100%}";

/// Text as it stands in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The page.
pub fn page(chapters: &[Chapter], fold: &Found, step: &Steps) -> Outcome<String> {
    let mut text = format!(
        "<!DOCTYPE html><html lang=\"en\"><meta charset=\"utf-8\"><title>Arck beside tmpfs</title>\
         <style>{STYLE}</style><h1>Arck beside tmpfs</h1>\n<p>Bars are factors: how many times as fast as tmpfs Arck \
         is; the thin line is 1, a mark is what is wanted.</p>\n"
    );
    for chapter in chapters {
        let bars: Vec<Bar> = chapter.rows.iter().map(Bar::of_row).collect();
        let plot = plot(&bars, Some(1.0))?;
        let (command, told) = (escaped(&chapter.command), escaped(&chapter.told));
        let machine = escaped(&chapter.machine.to_string());
        let table = table(&chapter.rows);
        let shortened = chapter.shortened.as_ref().map_or_else(String::new, |what| {
            format!("<b>Shortened:</b> {} ", escaped(what))
        });
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "<h2>{command}</h2>\n<p>{told} Medians of {} round(s); <code>--persist {}</code> ({}). \
             {shortened}It took {:.0} s. {machine}.</p>\n\
             {plot}\n<details><summary>Figures</summary>{table}</details>",
            chapter.rounds, chapter.persist, chapter.flushing, chapter.seconds
        );
    }
    text.push_str(&of_fold(fold));
    text.push_str(&of_steps(step)?);
    text.push_str("</html>\n");
    Ok(text)
}

fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "<table><tr><th>operation<th>where<th>tmpfs ns<th>Arck ns<th>factor<th>wanted\
         <th>longest call, ms (wanted: {:.0})<th>waiting<th>bystander's 99.9 %, ms (wanted: {:.0})</tr>",
        LONGEST / 1e6,
        BYSTANDER / 1e6
    );
    for row in rows {
        let wanted = wanted(row.wanted);
        let low = row.wanted.is_some_and(|wanted| row.ratio < wanted);
        let class = if low { "n low" } else { "n" };
        let milliseconds = |time: Option<f64>, most: f64| match time {
            None => "<td class=n>".to_owned(),
            Some(time) => {
                let class = if time > most { "n low" } else { "n" };
                format!("<td class=\"{class}\">{:.2}", time / 1e6)
            }
        };
        let longest = milliseconds(row.calls.map(|sides| sides.arck.longest), LONGEST);
        let waiting = row.calls.map_or_else(String::new, |sides| {
            format!("{:.0} %", sides.arck.waiting * 100.0)
        });
        let bystander = milliseconds(
            row.bystander.map(|sides| sides.arck.percent_99_9),
            BYSTANDER,
        );
        let _ = write!(
            text,
            "<tr><td>{}<td>{}<td class=n>{:.0}<td class=n>{:.0}<td class=\"{class}\">{:.2}<td class=n>{wanted}\
             {longest}<td class=n>{waiting}{bystander}</tr>",
            escaped(&row.what),
            escaped(&row.setting),
            row.tmpfs,
            row.arck,
            row.ratio
        );
    }
    text + "</table>"
}

/// What a name costs the controller.
fn of_fold(fold: &Found) -> String {
    let mut rows = String::new();
    for row in &fold.rows {
        let class = if row.both > row.wanted { "n low" } else { "n" };
        // Writing to a string does not fail.
        let _ = write!(
            rows,
            "<tr><td>{}<td class=n>{:.0}<td class=n>{:.0}<td class=\"{class}\">{:.0}<td class=n>{:.0}</tr>",
            row.what, row.storm, row.fold, row.both, row.wanted
        );
    }
    format!(
        "<h2>arck-bench fold</h2>\n<p>{}</p>\n<table><tr><th>a name that is<th>while the session works\
         <th>when it is folded<th>together<th>wanted</tr>{rows}</table>\n",
        escaped(&fold.told())
    )
}

/// What operations do: their instructions, as bars, and all that was counted.
fn of_steps(step: &Steps) -> Outcome<String> {
    let bars: Vec<Bar> = step.rows.iter().map(Bar::of_step).collect();
    let plot = plot(&bars, None)?;
    let mut rows = String::new();
    for row in &step.rows {
        let wanted = row.wanted.map_or_else(String::new, |most| most.to_string());
        let figures: String = row
            .each
            .beside()
            .iter()
            .map(|figure| format!("<td class=n>{figure}"))
            .collect();
        // Writing to a string does not fail.
        let _ = writeln!(
            rows,
            "<tr><td>{}<td>{}<td class=n>{}<td class=n>{wanted}{figures}</tr>",
            escaped(&row.operation),
            escaped(row.way),
            row.each.instructions
        );
    }
    Ok(format!(
        "<h2>{}</h2>\n<p>Instructions of a warm operation, counted by single steps; a mark is what ArckFS+'s LibFS takes, \
         which checks no permission and keeps no times. <code>--persist {}</code> ({}).</p>\n{plot}\n\
         <details><summary>Figures</summary><table><tr><th>operation<th>way<th>instructions<th>wanted<th>preload library\
         <th>libc<th>system calls<th>lines read<th>written<th>in all<th>of the pool<th>flushes<th>streamed\
         <th>fences<th>locked</tr>{rows}</table></details>",
        escaped(&step.command),
        step.persist,
        step.flushing
    ))
}

/// A line of a plot.
struct Bar {
    name: String,
    length: f64,
    wanted: Option<f64>,
    /// Whether it is as it is wanted.
    good: bool,
    says: String,
}

impl Bar {
    fn of_row(row: &Row) -> Bar {
        Bar {
            name: format!("{}; {}", row.what, row.setting),
            length: row.ratio,
            wanted: row.wanted,
            good: row.wanted.is_none_or(|wanted| row.ratio >= wanted),
            says: format!("{:.2}", row.ratio),
        }
    }

    fn of_step(row: &crate::step::Row) -> Bar {
        let instructions = row.each.instructions;
        Bar {
            name: format!("{}; {}", row.operation, row.way),
            length: instructions as f64,
            wanted: row.wanted.map(|most| most as f64),
            good: row.wanted.is_none_or(|most| instructions <= most),
            says: instructions.to_string(),
        }
    }
}

/// Bars as SVG, with a thin line at a length.
fn plot(bars: &[Bar], line: Option<f64>) -> Outcome<String> {
    let height = LINE * bars.len() as i32 + 10;
    let most = bars
        .iter()
        .flat_map(|bar| [Some(bar.length), bar.wanted])
        .flatten()
        .filter(|length| length.is_finite())
        .fold(1.0, f64::max);
    let place = |length: f64| NAMES + (length.max(0.0) / most * BARS) as i32;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32));
        let area = area.into_drawing_area();
        let failed = |error: DrawingAreaErrorKind<_>| -> String { format!("a plot: {error}") };
        for (row, bar) in bars.iter().enumerate() {
            let top = LINE * row as i32 + 5;
            let small = ("sans-serif", 14).into_font();
            let name = Text::new(bar.name.clone(), (4, top + 1), small.clone());
            area.draw(&name).map_err(failed)?;
            let colour = if bar.good {
                RGBColor(76, 140, 110)
            } else {
                RGBColor(214, 122, 90)
            };
            let corners = [(NAMES, top + 2), (place(bar.length), top + LINE - 4)];
            area.draw(&Rectangle::new(corners, colour.filled()))
                .map_err(failed)?;
            if let Some(wanted) = bar.wanted {
                let at = place(wanted);
                let mark = vec![(at, top), (at, top + LINE - 2)];
                area.draw(&PathElement::new(mark, BLACK.stroke_width(2)))
                    .map_err(failed)?;
            }
            let right = place(bar.length.max(bar.wanted.unwrap_or(0.0))) + 5;
            area.draw(&Text::new(bar.says.clone(), (right, top + 1), small))
                .map_err(failed)?;
        }
        if let Some(line) = line {
            let line = vec![(place(line), 0), (place(line), height)];
            let line = PathElement::new(line, RGBColor(120, 120, 120).stroke_width(1));
            area.draw(&line).map_err(failed)?;
        }
        area.present().map_err(failed)?;
    }
    Ok(svg)
}
