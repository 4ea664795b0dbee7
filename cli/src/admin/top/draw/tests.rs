//! Tests of the screen for various clusters.

use super::super::key::Key;
use super::super::testing::{look, model, moving, nodes};
use super::*;
use crate::documents::Node;
use crate::documents::testing::node;
use crate::output::Output;
use archon_client::{MovePhase, NodeGoal, NodeStatus, Reason, ReasonCode, Severity, Subject};
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::Size;
use ratatui::style::{Color, Style};

const SMALL: Size = Size::new(80, 24);
const NOW: Duration = Duration::from_secs(1);

/// Returns the screen of a terminal of this size.
fn drawn(model: &Model, size: Size, now: Duration) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(size.width, size.height)).unwrap();
    terminal.draw(|frame| draw(model, now, frame.area(), frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let line = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(|y| line(y).trim_end().to_owned()).collect()
}

fn screen(model: &Model, size: Size) -> String {
    lines(&drawn(model, size, NOW)).join("\n").trim_end().to_owned()
}

/// Returns the colour at the first occurrence of this text.
fn color_of(buffer: &Buffer, text: &str) -> Option<Color> {
    let found = lines(buffer).iter().enumerate().find_map(|(y, line)| {
        let at = line.find(text)?;
        Some((line[..at].chars().count(), y))
    });
    let (x, y) = found.unwrap_or_else(|| panic!("{text:?} is not in {:#?}", lines(buffer)));
    buffer[(x as u16, y as u16)].style().fg
}

fn cities() -> Vec<Node> {
    let city = |id, name: &str, rate| Node {
        operations_per_second: Some(rate),
        bytes_stored: Some(5 << 20),
        zone: Some("east".into()),
        ..node(id, name, 3)
    };
    vec![city(1, "athens", 900), city(2, "byzantium", 300), city(3, "cyrene", 0)]
}

#[test]
fn three_nodes_on_a_small_terminal() {
    assert_eq!(
        screen(&model(cities(), SMALL), SMALL),
        "\
cluster     6f1e, table version 41                               ? help, q quits
quorum      coordinator 2 leads in term 4, 2 of 3 reachable; 3 at 127.0.0.1:710…
partitions  9 of 9 online, between 3 and 3 replicas per serving node
nodes       2 alive                                         1 to 3 of 3, by name
operations  1200 per second, up to 1200 in the last 5m
                                                                               █
NODE▾        STATUS        ZONE     LED  COPIES       DATA   OPS/S LOAD
athens       alive         east       3       3    5.0 MiB     900 225% ███│███
byzantium    alive         east       3       3    5.0 MiB     300  75% ██▋│
cyrene       alive         east       3       3    5.0 MiB       0   0%    │
moves       none, and none before
events      newest last
    1m ago  node athens: athens was silent for 3 s  (coordinator 2)
    1m ago  node athens: athens is back  (coordinator 2)"
    );
}

#[test]
fn a_thousand_nodes_fill_the_screen_and_no_more() {
    for (size, seen) in [(SMALL, 13), (Size::new(200, 60), 46)] {
        let mut model = model(nodes(1_000), size);
        let text = screen(&model, size);
        assert_eq!(text.matches("node-").count(), seen, "{text}");
        assert!(text.contains(&format!("1 to {seen} of 1000, by name")), "{text}");
        assert!(text.contains("node-0000") && text.contains("athens is back"), "{text}");
        model.press(Key::Last);
        let text = screen(&model, size);
        assert!(text.contains("node-0999") && !text.contains("node-0000"), "{text}");
        assert!(text.contains(&format!("{} to 1000 of 1000", 1_001 - seen)), "{text}");
    }
}

#[test]
fn large_terminal_shows_more_details() {
    let size = Size::new(200, 60);
    let mut look = look(cities());
    look.rebalance.running = true;
    look.rebalance.summary.moves_total = 40;
    look.rebalance.moves = (1..=40).map(|id| moving(id, MovePhase::Copying)).collect();
    look.rebalance.moves[0].message = "copying to ephesus".into();
    let mut model = model(cities(), size);
    model.looked(look, NOW);
    let text = screen(&model, size);
    assert!(
        text.contains("quorum      coordinator 2 leads in term 4, 2 of 3 reachable; 3 at 127.0.0.1:7103 is away"),
        "{text}"
    );
    assert_eq!(text.matches("athens → ephesus").count(), 40, "{text}");
    assert!(text.contains("copying to ephesus") && text.contains("athens is back"), "{text}");
}

#[test]
fn running_moves_show_source_and_target() {
    let mut look = look(cities());
    look.rebalance.running = true;
    let summary = &mut look.rebalance.summary;
    (summary.moves_total, summary.done, summary.copying, summary.percent) = (4, 1, 1, 35);
    (summary.bytes_done, summary.bytes_total) = (14 << 20, 40 << 20);
    let phases = [MovePhase::Done, MovePhase::Copying, MovePhase::Queued, MovePhase::InSync];
    look.rebalance.moves = (1..).zip(phases).map(|(id, phase)| moving(id, phase)).collect();
    let mut model = model(cities(), SMALL);
    model.looked(look, 2 * NOW);
    let text = screen(&model, SMALL);
    let rows = "\
moves       1 of 4 moves over, 1 running, 35%, 14.0 MiB of 40.0 MiB, 7.0 MiB pe…
orders/2       athens → ephesus             40% Copying   4.0 MiB of 10.0 MiB
orders/4       athens → ephesus             40% InSync    4.0 MiB of 10.0 MiB
";
    assert!(text.contains(rows), "{text}");
    assert!(!text.contains("orders/1 ") && !text.contains("orders/3 "), "{text}");
}

#[test]
fn failed_and_drained_nodes_differ_in_word_and_colour() {
    let mut nodes = cities();
    nodes[1].status = NodeStatus::Failed.into();
    nodes[2].goal = NodeGoal::Drain.into();
    let buffer = drawn(&model(nodes.clone(), SMALL), SMALL, NOW);
    assert_eq!(color_of(&buffer, "failed"), Some(Color::Red));
    assert_eq!(color_of(&buffer, "byzantium"), Some(Color::Red));
    assert_eq!(color_of(&buffer, "being drained"), Some(Color::Yellow));
    assert_eq!(color_of(&buffer, "athens"), Some(Color::Reset));
    assert_eq!(color_of(&buffer, "2 of 3 reachable"), Some(Color::Red));
    // Without colour there is none at all, and the text is the same.
    let plain = Output { color: false, ..*model(vec![], SMALL).output() };
    let mut dull = Model::new(look(nodes), Duration::ZERO, NOW, plain);
    dull.resized(SMALL);
    let without = drawn(&dull, SMALL, NOW);
    assert_eq!(lines(&without), lines(&buffer));
    let reset = Style::new().fg(Color::Reset).bg(Color::Reset);
    assert!(without.content.iter().all(|cell| cell.style().fg == reset.fg && cell.style().bg == reset.bg));
    assert!(without.content.iter().all(|cell| cell.modifier.is_empty()));
}

#[test]
fn last_screen_stays_without_an_answer() {
    let mut model = model(cities(), SMALL);
    model.unanswered("the quorum has no leader".to_owned());
    let buffer = drawn(&model, SMALL, 12 * NOW);
    let found = lines(&buffer);
    assert!(found[0].starts_with("cluster     no answer for 12 s: the quorum has no leader"), "{found:#?}");
    assert!(found.iter().any(|line| line.starts_with("cyrene")), "{found:#?}");
    assert_eq!(color_of(&buffer, "no answer"), Some(Color::Red));
    model.looked(look(cities()), 13 * NOW);
    assert!(!screen(&model, SMALL).contains("no answer"));
}

#[test]
fn reasons_that_do_not_fit_are_counted() {
    let mut look = look(cities());
    let subject = Subject::Node { node_id: 3, node: "cyrene".into() };
    let reason = Reason {
        code: ReasonCode::NodeFailed.into(),
        severity: Severity::Warning.into(),
        subject,
        facts: Default::default(),
        message: "cyrene is silent".into(),
        began_at_ms: Some(look.at_ms - 5_000),
        remedy: None,
    };
    look.status.reasons = vec![reason; 5];
    let mut model = model(cities(), SMALL);
    model.looked(look, NOW);
    let found = lines(&drawn(&model, SMALL, 3 * NOW));
    assert_eq!(found[4], "waiting     NodeFailed: cyrene is silent (node cyrene, for 7s)");
    assert_eq!(found[5], "            4 reasons more: `archon status`");
    assert!(found[6].starts_with("operations"), "{found:#?}");
    let size = Size::new(80, 40);
    model.resized(size);
    assert_eq!(screen(&model, size).matches("cyrene is silent").count(), 5);
}

#[test]
fn foreign_names_are_escaped_and_cut() {
    let mut nodes = vec![node(1, "雅典娜雅典娜雅典娜", 1), node(2, "a\u{1b}[2J\u{7}\nb\u{202e}", 2), node(3, "", 3)];
    nodes[0].zone = Some("\u{9b}31m".into());
    let text = screen(&model(nodes, SMALL), SMALL);
    let rows: Vec<&str> = text.lines().filter(|line| line.contains(" alive  ") && !line.starts_with("nodes")).collect();
    assert_eq!(rows.len(), 3, "{text}");
    assert!(rows[1].starts_with("a\\u{1b}[2J") && rows[2].starts_with("雅 典 娜 雅 典  … alive"), "{text}");
    assert!(!text.contains(|character: char| character != '\n' && character.is_control()), "{text:?}");
}

#[test]
fn help_explains_every_key_and_column() {
    let mut model = model(cities(), SMALL);
    model.press(Key::Help);
    let text = screen(&model, SMALL);
    for part in ["q, Esc, Ctrl-C", "sort the nodes", "LOAD", "fair share", "archon check"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("athens") && !text.contains('…'), "it fits: {text}");
}

#[test]
fn empty_cluster_shows_the_next_step() {
    let text = screen(&model(vec![], SMALL), SMALL);
    assert!(text.contains("start one: `archon node --help`") && text.contains("no report yet"), "{text}");
}

proptest! {
    #[test]
    fn any_size_is_drawn_without_panic(
        width in 0..260_u16,
        height in 0..90_u16,
        tiny in any::<bool>(),
        count in 0..40_u32,
        help: bool,
        keys in prop::collection::vec(0..6_usize, 0..12),
    ) {
        let (width, height) = if tiny { (width % 14, height % 8) } else { (width, height) };
        let mut look = look(nodes(count));
        look.rebalance.running = true;
        look.rebalance.moves = (1..=5).map(|id| moving(id, MovePhase::Copying)).collect();
        look.status.reasons = vec![
            Reason {
                code: ReasonCode::NodeFailed.into(),
                severity: Severity::Warning.into(),
                subject: Subject::Cluster,
                facts: Default::default(),
                message: "雅典娜 is silent".into(),
                began_at_ms: None,
                remedy: None,
            };
            count as usize % 5
        ];
        let mut model = model(nodes(count), Size::new(width, height));
        model.looked(look, NOW);
        if help {
            model.press(Key::Help);
        }
        for key in keys {
            model.press([Key::Up, Key::Down, Key::PageUp, Key::PageDown, Key::Last, Key::Sort][key]);
        }
        // Also into another area than the model knows, and one that is larger than the buffer.
        for area in [(width, height), (width / 2, height + 3), (width + 5, height + 5)] {
            let mut buffer = Buffer::empty(Rect::new(2, 1, width, height));
            draw(&model, 9 * NOW, Rect::new(2, 1, area.0, area.1), &mut buffer);
        }
    }
}
