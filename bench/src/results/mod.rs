//! `dwell-bench results`: what was measured, kept as it was printed, and pages made of it.
//!
//! A run's line of JSON is kept in `bench/runs`, one file a scenario. `bench/RESULTS.md` has a table of each; the
//! README has a short one, between two marks. A test holds both pages to the runs.
//!
//! # Layout
//! - `measured`: a kept run, read again
//! - `page`: `RESULTS.md`
//! - `headlines`: the README's table

mod headlines;
mod measured;
mod page;

use std::fs;
use std::path::{Path, PathBuf};

use measured::Measured;

use crate::Result;

/// Takes the runs in that end these files, and writes the pages anew.
pub(crate) fn keep(logs: &[PathBuf]) -> Result<()> {
    let place = Place::of_this_repository();
    for log in logs {
        let text = fs::read_to_string(log).map_err(|error| format!("{}: {error}", log.display()))?;
        let run = Measured::last_line_of(&text).map_err(|error| format!("{}: {error}", log.display()))?;
        fs::create_dir_all(place.runs())?;
        let path = place.runs().join(format!("{}.json", run.scenario));
        fs::write(&path, format!("{:#}\n", run.json))?;
        println!("{} is now {}", path.display(), log.display());
    }
    let runs = place.read_runs()?;
    fs::write(place.page(), page::render(&runs))?;
    let readme = fs::read_to_string(place.readme())?;
    fs::write(place.readme(), headlines::into_readme(&readme, &runs)?)?;
    println!("{} and {} tell of {} runs", place.page().display(), place.readme().display(), runs.len());
    Ok(())
}

/// Where everything lies.
struct Place(PathBuf);

impl Place {
    fn of_this_repository() -> Place {
        Place(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
    }

    fn runs(&self) -> PathBuf {
        self.0.join("bench/runs")
    }

    fn page(&self) -> PathBuf {
        self.0.join("bench/RESULTS.md")
    }

    fn readme(&self) -> PathBuf {
        self.0.join("README.md")
    }

    /// All runs, by the names of their scenarios: which of them this program was built with makes no difference.
    fn read_runs(&self) -> Result<Vec<Measured>> {
        let mut runs = Vec::new();
        for entry in fs::read_dir(self.runs())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let run = Measured::parse(&fs::read_to_string(&path)?);
                runs.push(run.map_err(|error| format!("{}: {error}", path.display()))?);
            }
        }
        runs.sort_by(|one, other| one.scenario.cmp(&other.scenario));
        Ok(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_say_what_the_runs_say() {
        let stale =
            "is not what the runs say: `cargo run --release -p dwell-bench -- results` writes it anew";
        let place = Place::of_this_repository();
        let runs = place.read_runs().unwrap();
        assert!(!runs.is_empty(), "nothing was measured");
        assert!(fs::read_to_string(place.page()).unwrap() == page::render(&runs), "RESULTS.md {stale}");
        let readme = fs::read_to_string(place.readme()).unwrap();
        assert!(headlines::into_readme(&readme, &runs).unwrap() == readme, "the README {stale}");
    }
}
