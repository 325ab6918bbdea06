//! The commands of each script, as reported by `MONITOR`: work is counted, since time depends on the machine.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use dwell_testkit::redis::Server;

/// A command with its arguments, as `MONITOR` quotes them.
pub(crate) type Asked = Vec<String>;

/// Records the commands of each script from now on.
pub(crate) struct Watch(BufReader<TcpStream>);

impl Watch {
    pub(crate) fn start(server: &Server) -> Watch {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("it is not zero");
        stream.write_all(b"MONITOR\r\n").expect("it reads");
        let mut lines = BufReader::new(stream);
        let mut answer = String::new();
        lines.read_line(&mut answer).expect("it answers");
        assert_eq!(answer.trim(), "+OK");
        Watch(lines)
    }

    /// The scripts so far, each with its commands.
    pub(crate) fn scripts(mut self, server: &Server) -> Vec<Vec<Asked>> {
        let end = "the end of the watch";
        server.command(&["ECHO", end]);
        let (mut scripts, mut line) = (Vec::<Vec<Asked>>::new(), Vec::new());
        loop {
            line.clear();
            self.0.read_until(b'\n', &mut line).expect("the end comes");
            let line = String::from_utf8_lossy(&line);
            let (from, words) = line.split_once("] ").expect("who, and what");
            let words: Asked = words.trim().trim_matches('"').split("\" \"").map(str::to_owned).collect();
            if words[0] == "ECHO" && words[1] == end {
                return scripts;
            }
            if words[0].starts_with("EVAL") {
                scripts.push(Vec::new());
            } else if from.ends_with(" lua") {
                scripts.last_mut().expect("a script asks").push(words);
            }
        }
    }
}

/// The number of times that a script has called `command`.
pub(crate) fn count(script: &[Asked], command: &str) -> usize {
    script.iter().filter(|asked| asked[0] == command).count()
}

/// The number of elements that a script has read in pages, and of searches without a bound.
pub(crate) fn read(script: &[Asked]) -> (usize, usize) {
    let (mut elements, mut searches) = (0, 0);
    let number = |word: &String| word.parse::<i64>().expect("it is a number");
    for asked in script {
        match asked[0].as_str() {
            "LRANGE" | "ZRANGE" => {
                let (from, to) = (number(&asked[2]), number(&asked[3]));
                elements +=
                    if to < from && to < 0 { usize::MAX / 2 } else { (to + 1 - from).max(0) as usize };
            }
            "ZRANGEBYSCORE" => {
                let at = asked.iter().position(|word| word == "LIMIT");
                elements += at.map_or(usize::MAX / 2, |at| number(&asked[at + 2]) as usize);
            }
            "HGETALL" | "SMEMBERS" | "HVALS" | "HKEYS" => elements = usize::MAX / 2,
            "LPOS" if asked.iter().any(|word| word == "MAXLEN") => {}
            "LPOS" | "LREM" => searches += 1,
            _ => {}
        }
    }
    (elements, searches)
}
