//! `bench/RESULTS.md`: a table per run.

use std::fmt::Write as _;

use super::measured::Measured;

const HEAD: &str = "\
# Results

What was measured last, a table a scenario. It is made of the runs in `bench/runs`, which are kept as the scenarios
printed them, by this command; a test holds this page to them:

    cargo run --release -p dwell-bench -- results [FILE WHOSE LAST LINE IS A RUN'S JSON ...]

Medians of the rounds. *ratio* is how many times better dwell is, whichever way the metric points: below 1 the peer is
better. A single benchmark is never enough: run them on your own machine, each is one command.
";

/// Removed scenarios whose last runs are kept.
const GONE: &[&str] = &["disk", "engine-growth", "lateness-longpoll"];
const WHERE: &str = "../docs/decisions/2026-11-26-benches-that-are-gone.md";

/// Renders the page.
pub(crate) fn render(runs: &[Measured]) -> String {
    let mut page = HEAD.to_owned();
    for run in runs {
        let Measured { scenario, machine, commit, command, rounds, .. } = run;
        let rounds = if *rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds") };
        let _ = write!(page, "\n## {scenario}\n\n");
        if GONE.contains(&scenario.as_str()) {
            let _ = write!(page, "[Gone]({WHERE}). At the commit below its command was\n\n");
        }
        let _ = write!(page, "    {command}\n\n{machine}; commit {commit}; {rounds}.\n\n");
        for note in &run.notes {
            let _ = writeln!(page, "- {}", escaped(note));
        }
        if !run.notes.is_empty() {
            page.push('\n');
        }
        page.push_str("| work | metric | dwell | peer | theirs | ratio |\n|---|---|--:|---|--:|--:|\n");
        for row in &run.rows {
            let (work, peer) = (escaped(&row.work), escaped(row.peer.as_deref().unwrap_or_default()));
            let line = format!(
                "| {work} | {} | {} | {peer} | {} | {} |",
                row.metric, row.ours, row.theirs, row.ratio
            );
            page.push_str(&line);
            page.push('\n');
        }
    }
    page
}

/// Escapes text for a table cell.
pub(super) fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::GONE;
    use crate::scenarios::SCENARIOS;

    #[test]
    fn what_is_gone_is_not_there() {
        for gone in GONE {
            assert!(SCENARIOS.iter().all(|scenario| scenario.name != *gone), "{gone} is a scenario");
        }
    }
}
