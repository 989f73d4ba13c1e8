//! A page in HTML that needs nothing else: what chapters found, as plots and tables.

use crate::chapter::{Chapter, Row};
use crate::outcome::Outcome;
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
pub fn page(chapters: &[Chapter]) -> Outcome<String> {
    let mut text = format!(
        "<!DOCTYPE html><html lang=\"en\"><meta charset=\"utf-8\"><title>Arck beside tmpfs</title>\
         <style>{STYLE}</style><h1>Arck beside tmpfs</h1>\n<p>Bars are factors: how many times as fast as tmpfs Arck \
         is; the thin line is 1, a mark is what is wanted.</p>\n"
    );
    for chapter in chapters {
        let plot = plot(&chapter.rows)?;
        let (command, told) = (escaped(&chapter.command), escaped(&chapter.told));
        let machine = escaped(&chapter.machine.to_string());
        let table = table(&chapter.rows);
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "<h2>{command}</h2>\n<p>{told} Medians of {} round(s); <code>--persist {}</code> ({}). {machine}.</p>\n\
             {plot}\n<details><summary>Figures</summary>{table}</details>",
            chapter.rounds, chapter.persist, chapter.flushing
        );
    }
    text.push_str("</html>\n");
    Ok(text)
}

fn table(rows: &[Row]) -> String {
    let mut text = "<table><tr><th>operation<th>where<th>tmpfs ns<th>Arck ns<th>factor<th>wanted\
                    <th>longest call, ms<th>waiting<th>bystander's 99.9 %, ms</tr>"
        .to_owned();
    for row in rows {
        let wanted = row
            .wanted
            .map_or_else(String::new, |one| format!("{one:.1}"));
        let low = row.wanted.is_some_and(|wanted| row.ratio < wanted);
        let class = if low { "n low" } else { "n" };
        let milliseconds =
            |time: Option<f64>| time.map_or_else(String::new, |time| format!("{:.2}", time / 1e6));
        let longest = milliseconds(row.calls.map(|sides| sides.arck.longest));
        let waiting = row.calls.map_or_else(String::new, |sides| {
            format!("{:.0} %", sides.arck.waiting * 100.0)
        });
        let bystander = milliseconds(row.bystander.map(|sides| sides.arck.percent_99_9));
        let _ = write!(
            text,
            "<tr><td>{}<td>{}<td class=n>{:.0}<td class=n>{:.0}<td class=\"{class}\">{:.2}<td class=n>{wanted}\
             <td class=n>{longest}<td class=n>{waiting}<td class=n>{bystander}</tr>",
            escaped(&row.what),
            escaped(&row.setting),
            row.tmpfs,
            row.arck,
            row.ratio
        );
    }
    text + "</table>"
}

/// Bars of the rows' factors, as SVG.
fn plot(rows: &[Row]) -> Outcome<String> {
    let height = LINE * rows.len() as i32 + 10;
    let most = rows
        .iter()
        .flat_map(|row| [Some(row.ratio), row.wanted])
        .flatten()
        .filter(|factor| factor.is_finite())
        .fold(1.0, f64::max);
    let place = |factor: f64| NAMES + (factor.max(0.0) / most * BARS) as i32;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32));
        let area = area.into_drawing_area();
        let failed = |error: DrawingAreaErrorKind<_>| -> String { format!("a plot: {error}") };
        for (line, row) in rows.iter().enumerate() {
            let top = LINE * line as i32 + 5;
            let name = format!("{}; {}", row.what, row.setting);
            let small = ("sans-serif", 14).into_font();
            let name = Text::new(name, (4, top + 1), small.clone());
            area.draw(&name).map_err(failed)?;
            let low = row.wanted.is_some_and(|wanted| row.ratio < wanted);
            let colour = if low {
                RGBColor(214, 122, 90)
            } else {
                RGBColor(76, 140, 110)
            };
            let bar = [(NAMES, top + 2), (place(row.ratio), top + LINE - 4)];
            area.draw(&Rectangle::new(bar, colour.filled()))
                .map_err(failed)?;
            if let Some(wanted) = row.wanted {
                let at = place(wanted);
                let mark = vec![(at, top), (at, top + LINE - 2)];
                area.draw(&PathElement::new(mark, BLACK.stroke_width(2)))
                    .map_err(failed)?;
            }
            let factor = format!("{:.2}", row.ratio);
            let right = (place(row.ratio.max(row.wanted.unwrap_or(0.0))) + 5, top + 1);
            area.draw(&Text::new(factor, right, small))
                .map_err(failed)?;
        }
        let one = vec![(place(1.0), 0), (place(1.0), height)];
        let line = PathElement::new(one, RGBColor(120, 120, 120).stroke_width(1));
        area.draw(&line).map_err(failed)?;
        area.present().map_err(failed)?;
    }
    Ok(svg)
}
