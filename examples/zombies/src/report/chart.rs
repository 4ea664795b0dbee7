//! A chart of some curves: a line of text for each, or a file.

use std::fmt::Write as _;

/// Curves over one axis.
pub(super) struct Chart {
    /// Name of its file.
    pub(super) name: &'static str,
    pub(super) title: String,
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    /// Logarithmic axis; values below 0.001 are not drawn.
    pub(super) by_powers: bool,
    pub(super) curves: Vec<Curve>,
}

pub(super) struct Curve {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 420.0;
/// Origin of the axes, and extent of the curves.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 590.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 360.0;
/// Maximum number of marks on an axis, besides zero.
const MARKS: f64 = 8.0;
/// Colours that colour-blind people can distinguish (Okabe and Ito 2008).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
const LEAST: f64 = 0.001;

impl Chart {
    /// Returns the file.
    pub(super) fn svg(&self) -> String {
        let largest = |of: fn(&(f64, f64)) -> f64| {
            self.curves.iter().flat_map(|curve| &curve.points).map(of).fold(f64::MIN_POSITIVE, f64::max)
        };
        let (wide, high) = (largest(|point| point.0), largest(|point| point.1));
        let top_power = high.log10().ceil();
        let up = |value: f64| match self.by_powers {
            true => (value.log10() - LEAST.log10()) / (top_power - LEAST.log10()),
            false => value / high,
        };
        let at = |x: f64, up: f64| (LEFT + (RIGHT - LEFT) * x / wide, BOTTOM - (BOTTOM - TOP) * up);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        let mut text = |x: f64, y: f64, how: &str, words: &str| {
            // Writing to a `String` cannot fail.
            let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {how}>{}</text>", escaped(words));
        };
        text(LEFT, 24.0, "font-size=\"16\"", &self.title);
        text((LEFT + RIGHT) / 2.0, BOTTOM + 42.0, "text-anchor=\"middle\"", self.x);
        text(8.0, TOP - 10.0, "", self.y);
        for x in marks(wide) {
            text(at(x, 0.0).0, BOTTOM + 20.0, "text-anchor=\"middle\"", &short(x));
        }
        let heights: Vec<f64> = match self.by_powers {
            true => (LEAST.log10() as i32..=top_power as i32).map(|power| 10_f64.powi(power)).collect(),
            false => marks(high).collect(),
        };
        for height in &heights {
            text(LEFT - 8.0, at(0.0, up(*height)).1 + 4.0, "text-anchor=\"end\"", &short(*height));
        }
        for (number, curve) in self.curves.iter().enumerate() {
            let colour = format!("fill=\"{}\"", COLOURS[number % COLOURS.len()]);
            text(RIGHT + 14.0, TOP + 10.0 + 20.0 * number as f64, &colour, &curve.name);
        }
        for height in heights {
            let y = at(0.0, up(height)).1;
            let _ = writeln!(svg, "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#ddd\"/>");
        }
        for (curve, colour) in self.curves.iter().zip(COLOURS.iter().cycle()) {
            let drawn = curve.points.iter().filter(|(_, y)| !self.by_powers || *y >= LEAST);
            let points: Vec<String> =
                drawn.map(|(x, y)| at(*x, up(*y))).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let points = points.join(" ");
            let _ =
                writeln!(svg, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Returns a line for each curve, of this many bars; the highest bar is the end of the axis.
    pub(super) fn lines(&self, bars: usize) -> String {
        let width = self.curves.iter().map(|curve| curve.name.chars().count()).max().unwrap_or(0);
        let end = self.curves.iter().filter_map(|curve| curve.points.last()).map(|point| point.0).fold(0.0, f64::max);
        let line = |curve: &Curve| {
            let bars: String = (0..bars).map(|bar| bar_at(curve, end * bar as f64 / (bars - 1) as f64)).collect();
            format!("  {:<width$}   {}\n", curve.name, bars.trim_end())
        };
        self.curves.iter().map(line).collect()
    }
}

/// Returns the bar of a curve at `x`.
fn bar_at(curve: &Curve, x: f64) -> char {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let passed = curve.points.partition_point(|point| point.0 <= x + 1e-9);
    let y = curve.points[passed.max(1) - 1].1;
    // Any value above zero is visible.
    BARS[(y * 8.0).ceil().clamp(0.0, 8.0) as usize]
}

/// Returns the marks of an axis: multiples of one, two or five times a power of ten.
fn marks(largest: f64) -> impl Iterator<Item = f64> {
    let power = 10_f64.powf((largest / MARKS).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|times| times * power);
    let step = steps.into_iter().find(|step| largest / step <= MARKS).unwrap_or(largest);
    (0..=(largest / step + 1e-9) as u32).map(move |mark| step * f64::from(mark))
}

fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curve_is_drawn_as_bars_and_as_svg_line() {
        let curve = Curve { name: "a < b".to_owned(), points: vec![(0.0, 1.0), (1.0, 0.5), (2.0, 0.001), (3.0, 0.0)] };
        let (title, curves) = ("title".to_owned(), vec![curve]);
        let chart = Chart { name: "name", title, x: "x", y: "y", by_powers: false, curves };
        assert_eq!(chart.lines(4), "  a < b   █▄▁\n");
        let svg = chart.svg();
        assert!(svg.contains("<polyline points=\"70.0,50.0 243.3,205.0 416.7,359.7 590.0,360.0\""), "{svg}");
        assert!(svg.contains("a &lt; b</text>"), "{svg}");
        assert_eq!(svg.matches("stroke=\"#ddd\"").count(), 6);
    }

    #[test]
    fn axes_are_marked_at_round_numbers() {
        for (largest, step, count) in [(6.0, 1.0, 7), (60.0, 10.0, 7), (1_600.0, 200.0, 9), (1.0, 0.2, 6)] {
            let marks: Vec<f64> = marks(largest).collect();
            assert!((marks[1] - step).abs() < 1e-9 && marks.len() == count, "{largest}: {marks:?}");
        }
    }
}
