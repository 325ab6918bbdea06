//! `dwell-bench`: comparisons of dwell with its peers. Each scenario runs both sides in one invocation.
//!
//! # Layout
//! - `scenarios`: the measurements, one file each, and the list of them
//! - `ours`, `ours_redis`, `server`: our side, as a library, on Redis, and as a process; `peers`: the other sides
//! - `run`: the context of a scenario: size, rounds, a folder, progress, a place for its results
//! - `report`: results as a table and as JSON; `results`: stores them, and generates pages from them
//! - `own_process`: parts of scenarios that run in child processes; `parts`: those that open the engine
//! - `steady_load`: the load of the scenarios that measure lateness
//! - `mix`, `body_writes`: messages derived from their number alone, and how often their bodies are written
//! - `beanstalk`: a client of beanstalkd's protocol
//! - `workload`, `stopwatch`, `page_cache`, `resources`, `machine`: shared by the scenarios

mod arguments;
mod beanstalk;
mod body_writes;
mod machine;
mod mix;
mod ours;
#[cfg(feature = "redis")]
mod ours_redis;
mod own_process;
mod page_cache;
mod parts;
mod peers;
mod report;
mod resources;
mod results;
mod run;
mod scenarios;
mod server;
mod steady_load;
mod stopwatch;
mod workload;

use std::process::ExitCode;

use arguments::{Arguments, Command, USAGE};
use report::Report;
use run::Run;
use scenarios::{SCENARIOS, Scenario};

/// Any error ends the scenario, so only its text matters.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The same allocator as the server's. Peers within this process use it too.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let command = match Arguments::parse(std::env::args().skip(1)) {
        Ok(command) => command,
        Err(reason) => {
            eprintln!("dwell-bench: {reason}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match command {
        Command::Help => print!("{USAGE}"),
        Command::List => list(),
        Command::Results(files) => {
            if let Err(error) = results::keep(&files) {
                eprintln!("dwell-bench: results: {error}");
                return ExitCode::FAILURE;
            }
        }
        Command::Part(name, parameters) => {
            let mut all = parts::PARTS.iter().chain(scenarios::delay_queue::PARTS);
            let part = all.find(|part| part.name == name);
            let run = |part: &own_process::Part| own_process::run(part, &parameters);
            if let Err(error) = part.map_or_else(|| Err("there is none".into()), run) {
                eprintln!("dwell-bench: part {name}: {error}");
                return ExitCode::FAILURE;
            }
        }
        Command::Measure(arguments) => {
            let Some(scenario) = SCENARIOS.iter().find(|scenario| scenario.name == arguments.scenario) else {
                eprintln!("dwell-bench: there is no scenario '{}'; `list` names them", arguments.scenario);
                return ExitCode::from(2);
            };
            if let Err(error) = measure(scenario, &arguments) {
                eprintln!("dwell-bench: {}: {error}", scenario.name);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn list() {
    let width = SCENARIOS.iter().map(|scenario| scenario.name.len()).max().unwrap_or_default();
    for scenario in SCENARIOS {
        println!("{:width$}  {}", scenario.name, scenario.what);
    }
}

fn measure(scenario: &Scenario, arguments: &Arguments) -> Result<()> {
    let mut run = Run::new(arguments)?;
    (scenario.run)(&mut run)?;
    let report: Report = run.finish(scenario.name);
    if let (Some(only), true) = (&arguments.only, report.rows.is_empty()) {
        return Err(format!("no row's work contains '{only}'").into());
    }
    print!("{report}");
    if arguments.json {
        println!("{}", report.json());
    }
    Ok(())
}
