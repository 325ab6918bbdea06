//! The schema: layouts, each of which is run once, and functions, which every migration replaces.
//!
//! No statement names the schema. The caller sets `search_path` to the schema and `pg_temp`, in one transaction for all
//! statements: objects are created there, and functions keep that path (`SET search_path FROM CURRENT`).

/// A file of SQL statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script {
    /// Its name, without folder and extension.
    pub name: &'static str,
    /// Its text: any number of statements.
    pub sql: &'static str,
}

macro_rules! scripts {
    ($folder:literal: $($name:literal)*) => {
        &[$(Script { name: $name, sql: include_str!(concat!("sql/", $folder, $name, ".sql")) }),*]
    };
}

/// The layouts in order: the first creates layout 1, and each of the others migrates to the next one.
pub const LAYOUTS: &[Script] = scripts!("": "0001_tables");

/// The functions of the newest layout, in the order in which they have to be created.
pub const FUNCTIONS: &[Script] = scripts!("functions/":
    "clock" "id" "place" "refuse" "queue" "transition" "put" "take" "settle" "change" "dead" "message" "stats" "session" "purge" "maintain" "open"
    "caller" "rights");

/// The functions that may be granted to other roles. All others are for the store alone.
pub const FOR_CALLERS: &[&str] = &["put", "try_put", "put_many", "cancel", "reschedule", "ack"];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    fn names_in(folder: &str) -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let scripts = files.filter(|path| path.extension().is_some_and(|ending| ending == "sql"));
        scripts.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    }

    /// The statements without comments.
    fn code(script: &Script) -> String {
        script
            .sql
            .lines()
            .map(|line| line.split("--").next().unwrap_or_default())
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn no_file_is_left_out() {
        let listed = |scripts: &[Script]| scripts.iter().map(|script| script.name.to_owned()).collect();
        assert_eq!(names_in("src/sql"), listed(LAYOUTS));
        assert_eq!(names_in("src/sql/functions"), listed(FUNCTIONS));
    }

    #[test]
    fn the_tests_in_python_install_the_same() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sql/installed.py");
        let python = fs::read_to_string(path).unwrap();
        let list = |name: &str| -> Vec<String> {
            let (_, after) = python.split_once(&format!("\n{name} = [")).unwrap();
            let (list, _) = after.split_once(']').unwrap();
            list.split(',')
                .map(|word| word.trim().trim_matches('"').trim_end_matches(".sql").to_owned())
                .collect()
        };
        assert_eq!(list("LAYOUTS"), LAYOUTS.iter().map(|script| script.name).collect::<Vec<_>>());
        assert_eq!(list("FUNCTIONS"), FUNCTIONS.iter().map(|script| script.name).collect::<Vec<_>>());
        assert_eq!(list("FOR_CALLERS"), FOR_CALLERS);
    }

    #[test]
    fn one_file_reads_the_clock() {
        for script in LAYOUTS.iter().chain(FUNCTIONS).filter(|script| script.name != "clock") {
            for word in [
                "now()",
                "clock_timestamp",
                "current_timestamp",
                "statement_timestamp",
                "timeofday",
                "current_date",
            ] {
                assert!(!code(script).to_lowercase().contains(word), "{} has {word}", script.name);
            }
        }
    }

    #[test]
    fn no_statement_names_the_schema() {
        for script in LAYOUTS.iter().chain(FUNCTIONS) {
            let code =
                code(script).replace("dwell.hint", "").replace("dwell.noted", "").replace("dwell.again", "");
            assert!(!code.contains("dwell."), "{} names it", script.name);
        }
    }

    #[test]
    fn what_runs_as_its_owner_has_a_path_of_its_own_and_is_not_compiled() {
        for script in FUNCTIONS {
            for head in code(script).split("SECURITY DEFINER").skip(1) {
                let (head, _) = head.split_once("AS $$").expect("a body follows");
                for setting in ["SET search_path FROM CURRENT", "SET jit = off"] {
                    assert!(head.contains(setting), "{}: {head} lacks {setting}", script.name);
                }
            }
        }
    }
}
