//! Plots as SVG text: both axes logarithmic, one line per system.

use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 210.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 56.0;
/// Okabe and Ito's colours, which colour-blind people can distinguish.
const COLOURS: [&str; 7] = ["#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#009E73", "#CC79A7", "#000000"];
/// Distance between names at the right edge.
const NAME_HEIGHT: f64 = 18.0;

/// A line.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// Label at its end.
    pub(crate) name: String,
    /// From left to right; both coordinates above zero.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Returns the ends of an axis around all values: each 1, 2 or 5 times a power of ten.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return (1.0, 10.0);
    }
    let steps = || (-9..12).flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(decade)));
    let below = steps().rfind(|step| *step <= low).unwrap_or(low);
    let above = steps().find(|step| *step >= high && *step > below).unwrap_or(high);
    (below, above)
}

/// Formats a number for an axis: `1`, `10k`, `1M`.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", value / 1e3),
        value => format!("{value}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns the whole picture.
pub(crate) fn plot(title: &str, x_name: &str, y_name: &str, all: &[Series]) -> String {
    // Zero has no logarithm: such points are omitted.
    let drawn = |series: &Series| Series {
        name: series.name.clone(),
        points: series.points.iter().copied().filter(|(x, y)| *x > 0.0 && *y > 0.0).collect(),
    };
    let all = &all.iter().map(drawn).collect::<Vec<_>>()[..];
    let mut xs: Vec<f64> = all.iter().flat_map(|series| series.points.iter().map(|point| point.0)).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let (x_low, x_high) = (xs.first().copied().unwrap_or(1.0), xs.last().copied().unwrap_or(10.0));
    let (low, high) = ends(all.iter().flat_map(|series| series.points.iter().map(|point| point.1)));
    let span = (x_high.ln() - x_low.ln()).max(1e-9);
    let x = |value: f64| LEFT + (value.ln() - x_low.ln()) / span * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - (value.ln() - low.ln()) / (high.ln() - low.ln()) * (HEIGHT - TOP - BOTTOM);
    let mut svg = String::new();
    // Writing into a string cannot fail.
    let mut put = |text: std::fmt::Arguments<'_>| {
        let _ = svg.write_fmt(text);
    };
    put(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    ));
    put(format_args!("<text x=\"{LEFT}\" y=\"26\" font-size=\"16\" font-weight=\"bold\">{}</text>\n", escape(title)));
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for decade in low.log10().floor() as i32..=high.log10().ceil() as i32 {
        for step in 1..10 {
            let value = f64::from(step) * 10f64.powi(decade);
            if value < low * 0.999 || value > high * 1.001 {
                continue;
            }
            let (at, colour) = (y(value), if step == 1 { "#a0a0a0" } else { "#e4e4e4" });
            put(format_args!(
                "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"{colour}\"/>\n"
            ));
            if matches!(step, 1 | 2 | 5) {
                let text = short(value);
                put(format_args!(
                    "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>\n",
                    LEFT - 8.0,
                    at + 4.5
                ));
            }
        }
    }
    for value in &xs {
        let at = x(*value);
        put(format_args!("<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#dddddd\"/>\n"));
        put(format_args!("<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{value}</text>\n", bottom + 18.0));
    }
    put(format_args!(
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
        (LEFT + right) / 2.0,
        HEIGHT - 14.0,
        escape(x_name)
    ));
    put(format_args!(
        "<text transform=\"translate(20 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
        (TOP + bottom) / 2.0,
        escape(y_name)
    ));
    for ((series, at), colour) in all.iter().zip(name_places(all, y)).zip(COLOURS.iter().cycle()) {
        let line: Vec<String> = series.points.iter().map(|(a, b)| format!("{:.1},{:.1}", x(*a), y(*b))).collect();
        put(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\"/>\n",
            line.join(" ")
        ));
        for (a, b) in &series.points {
            put(format_args!("<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{colour}\"/>\n", x(*a), y(*b)));
        }
        if let Some((a, b)) = series.points.last() {
            let (from_x, from_y, to_x) = (x(*a) + 5.0, y(*b), right + 16.0);
            put(format_args!(
                "<line x1=\"{from_x:.1}\" y1=\"{from_y:.1}\" x2=\"{to_x:.1}\" y2=\"{at:.1}\" stroke=\"{colour}\" \
                 stroke-width=\"0.8\"/>\n"
            ));
            let name = escape(&series.name);
            put(format_args!(
                "<circle cx=\"{to_x:.1}\" cy=\"{at:.1}\" r=\"3.5\" fill=\"{colour}\"/>\n<text x=\"{:.1}\" y=\"{:.1}\">{name}</text>\n",
                to_x + 8.0,
                at + 4.5
            ));
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Returns the position of each name: beside the end of its line, without overlaps.
fn name_places(all: &[Series], y: impl Fn(f64) -> f64) -> Vec<f64> {
    let ends: Vec<f64> = all.iter().map(|series| series.points.last().map_or(HEIGHT, |point| y(point.1))).collect();
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|a, b| ends[*a].total_cmp(&ends[*b]));
    let mut places = vec![0.0; all.len()];
    // All of them fit, wherever the lines end.
    let mut free = TOP;
    let last = HEIGHT - BOTTOM;
    for index in &order {
        places[*index] = ends[*index].max(free);
        free = places[*index] + NAME_HEIGHT;
    }
    let mut most = last;
    for index in order.iter().rev() {
        places[*index] = places[*index].min(most);
        most = places[*index] - NAME_HEIGHT;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plot_has_a_line_a_name_and_all_points_per_system() {
        let series = |name: &str, factor: f64| Series {
            name: name.into(),
            points: [1.0, 16.0, 256.0].map(|clients| (clients, clients * factor)).to_vec(),
        };
        let svg = plot("puts <per second>", "clients", "puts/s", &[series("one", 900.0), series("two", 901.0)]);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 8);
        assert!(svg.contains(">one<") && svg.contains(">two<") && svg.contains("&lt;per second&gt;"));
        assert!(svg.contains(">100k<") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    }

    #[test]
    fn names_do_not_overlap_and_empty_plots_are_valid() {
        let same = || Series { name: "x".into(), points: vec![(1.0, 5.0)] };
        let places = name_places(&[same(), same(), same()], |_| 100.0);
        assert!(places[1] - places[0] >= NAME_HEIGHT && places[2] - places[1] >= NAME_HEIGHT, "{places:?}");
        assert!(!plot("t", "x", "y", &[]).contains("NaN"));
        let nothing = Series { name: "x".into(), points: vec![(1.0, 0.0), (4.0, 5.0)] };
        let svg = plot("t", "x", "y", &[nothing]);
        assert!(!svg.contains("inf") && svg.matches("<circle").count() == 2, "{svg}");
        assert_eq!(ends([3.0, 1_900.0].into_iter()), (2.0, 2_000.0));
        assert_eq!(ends([5.0, 5.0].into_iter()), (5.0, 10.0));
        let low = name_places(&[same(), same(), same()], |_| HEIGHT - BOTTOM);
        assert!(low.iter().all(|place| *place <= HEIGHT - BOTTOM), "{low:?}");
        assert!(low.windows(2).all(|pair| (pair[1] - pair[0]).abs() >= NAME_HEIGHT), "{low:?}");
    }
}
