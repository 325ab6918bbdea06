//! `dwell-bench results`: stores the results of runs as they were printed, and generates pages from them.
//!
//! A run's line of JSON is stored in `bench/runs`, one file per scenario. `bench/RESULTS.md` has a table of each; the
//! README has a short one, between two marks. A test checks that both pages match the runs.
//!
//! # Layout
//! - `measured`: reads a stored run
//! - `page`: `RESULTS.md`
//! - `headlines`: the README's table

mod headlines;
mod measured;
mod page;

use std::fs;
use std::path::{Path, PathBuf};

use measured::Measured;

use crate::Result;

/// Stores the runs that these files end with, and regenerates the pages.
pub(crate) fn keep(logs: &[PathBuf]) -> Result<()> {
    let place = ResultPlace::of_this_repository();
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

/// The root folder of the repository.
struct ResultPlace(PathBuf);

impl ResultPlace {
    fn of_this_repository() -> ResultPlace {
        ResultPlace(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
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

    /// All runs, by the names of their scenarios, including scenarios that this program was built without.
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
        let place = ResultPlace::of_this_repository();
        let runs = place.read_runs().unwrap();
        assert!(!runs.is_empty(), "nothing was measured");
        assert!(fs::read_to_string(place.page()).unwrap() == page::render(&runs), "RESULTS.md {stale}");
        let readme = fs::read_to_string(place.readme()).unwrap();
        assert!(headlines::into_readme(&readme, &runs).unwrap() == readme, "the README {stale}");
    }
}
