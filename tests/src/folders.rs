//! The folders inside a crate have no dependency cycles, but for a list of those that stay.
//!
//! Each level is checked by itself: the files and folders that lie side by side in one folder. One needs another if any
//! source below it, tests apart, names a path that leads there. A cycle counts only if a folder is in it: files of one
//! folder belong together and may need each other. A folder's `mod.rs` and the files in that folder are one member, so what
//! they need of each other is no cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::workspace::{read, sources};

/// A cycle that stays for now.
struct Allowed {
    /// The folder in which its members lie.
    folder: &'static str,
    /// All members of the cycle, in the order of their names.
    members: &'static [&'static str],
    why: &'static str,
}

const ALLOWED: &[Allowed] = &[
    Allowed {
        folder: "crates/cli/src",
        members: &["args", "bench", "command", "load", "output"],
        why: "`args` lists the commands, and each command knows its arguments: they are one table, cut by command",
    },
    Allowed {
        folder: "crates/cli/src/command",
        members: &["redisson", "serve"],
        why: "`serve` runs movers, and a mover that runs alone ends at the signals of `serve`; it goes when the signals \
              lie beside both",
    },
    Allowed {
        folder: "crates/engine/src",
        members: &["cold", "flush", "shard"],
        why: "a flush is given the shard's `Step`; it goes when messages are a module of their own",
    },
    Allowed {
        folder: "crates/engine/src",
        members: &["journal", "sealed", "table"],
        why: "tables are encoded with the journal's functions, and a body lies in a segment or a table; it goes \
              when encoding and bodies are modules of their own",
    },
    Allowed {
        folder: "crates/engine/src/journal",
        members: &["record", "setting"],
        why: "a setting is a part of a record; it goes when it lies in that folder",
    },
    Allowed {
        folder: "crates/server/src",
        members: &["beanstalkd", "config", "http", "json", "listener", "openapi", "query", "security"],
        why: "every module refuses with the problem documents of `http`, and `http` uses them all; it goes with the crate \
              of wire types",
    },
    Allowed {
        folder: "crates/server/src/beanstalkd",
        members: &["arguments", "command", "frame"],
        why: "a frame is parsed by the command that its first word names, and the parser of a command returns the errors \
              of frames",
    },
    Allowed {
        folder: "crates/sim/src",
        members: &["mutants", "run"],
        why: "a run plants a mutant, and the hunt for mutants runs seeds; it goes when the hunt is a command",
    },
];

#[test]
fn folders_have_no_cycles() {
    let mut wrong = Vec::new();
    let mut met = BTreeSet::new();
    for (root, files) in crates() {
        for cycle in Sources::new(files).cycles() {
            let folder = cycle.folder.iter().fold(root.clone(), |folder, name| format!("{folder}/{name}"));
            let allowed = ALLOWED.iter().position(|one| {
                one.folder == folder
                    && one.members.iter().copied().eq(cycle.members.iter().map(String::as_str))
            });
            match allowed {
                Some(at) => drop(met.insert(at)),
                None => wrong.push(format!("{folder}: {}\n{}", cycle.members.join(", "), cycle.reasons)),
            }
        }
    }
    let stale = ALLOWED.iter().zip(0..).filter(|(_, at)| !met.contains(at));
    wrong.extend(stale.map(|(one, _)| {
        format!("{}: {} have no cycle now: remove them from the list", one.folder, one.members.join(", "))
    }));
    assert!(ALLOWED.iter().all(|one| one.why.len() > 20), "an entry of the list has no reason");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// For each `src` folder its files: path relative to that folder, and text.
fn crates() -> BTreeMap<String, Vec<(String, String)>> {
    let mut crates: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for path in sources() {
        let text = path.to_str().expect("sources have names in UTF-8");
        let Some((root, file)) = text.split_once("/src/") else { continue };
        if !file.starts_with("bin/") {
            let files = crates.entry(format!("{root}/src")).or_default();
            files.push((file.to_owned(), read(Path::new(text))));
        }
    }
    assert!(crates.len() > 8, "only {} crates found", crates.len());
    crates
}

/// A module: the names that lead to it from the root of its crate.
type Module = Vec<String>;

/// The sources of a crate.
struct Sources {
    modules: BTreeMap<Module, Source>,
}

struct Source {
    file: String,
    /// The paths into its own crate that it names, from the root of the crate.
    named: Vec<Module>,
    /// What its `use` declarations bring in: the name in this source, and the path from the root of the crate.
    used: BTreeMap<String, Module>,
    is_test: bool,
}

/// Members of one folder that need each other.
#[derive(Debug, PartialEq, Eq)]
struct Cycle {
    folder: Module,
    members: Vec<String>,
    /// Which files need which.
    reasons: String,
}

impl Sources {
    /// Reads files: each is its path from the `src` folder, and its text.
    fn new(mut files: Vec<(String, String)>) -> Sources {
        if files.iter().any(|(file, _)| file == "lib.rs") {
            // A program beside a library is a crate of its own that uses the library.
            files.retain(|(file, _)| file != "main.rs");
        }
        let names: BTreeSet<Module> = files.iter().map(|(file, _)| module_of(file)).collect();
        let mut tests = BTreeSet::new();
        let mut modules = BTreeMap::new();
        for (file, text) in files {
            let module = module_of(&file);
            let all = tokens(&text);
            tests.extend(test_modules(&all).into_iter().map(|name| child(&module, name)));
            let code = without_tests(&all);
            let source = Source {
                named: named_in(&code)
                    .into_iter()
                    .filter_map(|path| absolute(&module, &path, &names))
                    .collect(),
                used: used_in(&code)
                    .into_iter()
                    .filter_map(|(name, path)| Some((name, absolute(&module, &path, &names)?)))
                    .collect(),
                file,
                is_test: false,
            };
            modules.insert(module, source);
        }
        for (module, source) in &mut modules {
            source.is_test = tests.iter().any(|test| module.starts_with(test));
        }
        Sources { modules }
    }

    /// The module that a path from the root leads to, followed through re-exports.
    fn target(&self, path: &[String]) -> Module {
        let mut path = path.to_vec();
        // Bounded: a re-export may lead to itself.
        for _ in 0..8 {
            let len = (0..=path.len()).rev().find(|len| self.modules.contains_key(&path[..*len]));
            let len = len.unwrap_or(0);
            let next = path.get(len).and_then(|name| self.modules.get(&path[..len])?.used.get(name));
            match next {
                Some(next) if *next != path[..=len] => path = [&next[..], &path[len + 1..]].concat(),
                _ => {
                    path.truncate(len);
                    break;
                }
            }
        }
        path
    }

    /// All cycles that a folder is in.
    fn cycles(&self) -> Vec<Cycle> {
        // For each folder: which of its members needs which other, and the files that say so.
        type Needs = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;
        let mut folders: BTreeMap<Module, Needs> = BTreeMap::new();
        for (from, source) in self.modules.iter().filter(|(_, source)| !source.is_test) {
            for path in &source.named {
                let to = self.target(path);
                let common = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
                // If one lies in the other, there is no pair of members.
                if let (Some(one), Some(other)) = (from.get(common), to.get(common)) {
                    let needs = folders.entry(from[..common].to_vec()).or_default();
                    let files = needs.entry(one.clone()).or_default().entry(other.clone()).or_default();
                    files.insert(format!("{} ({})", source.file, path.join("::")));
                }
            }
        }
        let mut cycles = Vec::new();
        for (folder, needs) in folders {
            for members in cycles_of(&needs) {
                if !members.iter().any(|member| self.is_folder(&child(&folder, member))) {
                    continue;
                }
                let mut reasons = String::new();
                for (one, others) in needs.iter().filter(|(one, _)| members.contains(one)) {
                    for (other, files) in others.iter().filter(|(other, _)| members.contains(other)) {
                        let files: Vec<&str> = files.iter().map(String::as_str).collect();
                        reasons.push_str(&format!("    {one} needs {other}: {}\n", files.join("; ")));
                    }
                }
                cycles.push(Cycle { folder: folder.clone(), members, reasons });
            }
        }
        cycles
    }

    fn is_folder(&self, module: &[String]) -> bool {
        self.modules.keys().any(|other| other.len() > module.len() && other.starts_with(module))
    }
}

/// The sets of members that reach each other, each in the order of their names.
fn cycles_of<T>(needs: &BTreeMap<String, BTreeMap<String, T>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = needs
        .keys()
        .map(|start| {
            let (mut reached, mut open) = (BTreeSet::new(), vec![start]);
            while let Some(one) = open.pop() {
                let next = needs.get(one).into_iter().flat_map(BTreeMap::keys);
                open.extend(next.filter(|next| reached.insert(*next)));
            }
            (start, reached)
        })
        .collect();
    let mut cycles = BTreeSet::new();
    for (start, others) in reached.iter().filter(|(start, others)| others.contains(**start)) {
        let comes_back = |other: &&&String| reached.get(**other).is_some_and(|back| back.contains(*start));
        cycles
            .insert(others.iter().filter(comes_back).map(|other| (*other).clone()).collect::<Vec<String>>());
    }
    cycles.into_iter().filter(|cycle| cycle.len() > 1).collect()
}

/// The module that a file holds.
fn module_of(file: &str) -> Module {
    let path = file.strip_suffix(".rs").expect("a source ends so");
    let mut module: Module = path.split('/').map(str::to_owned).collect();
    if ["mod", "lib", "main"].iter().any(|name| module.last().is_some_and(|last| last == name)) {
        module.pop();
    }
    module
}

fn child(module: &[String], name: impl Into<String>) -> Module {
    module.iter().cloned().chain([name.into()]).collect()
}

/// A path as it is written in a module, made to start at the crate's root; `None` if it leads out of the crate.
fn absolute(module: &[String], path: &[&str], modules: &BTreeSet<Module>) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    let mut from = match *first {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => {
            let ups = 1 + rest.iter().take_while(|name| **name == "super").count();
            let from = module[..module.len().checked_sub(ups)?].to_vec();
            return Some(from.into_iter().chain(path[ups..].iter().map(|name| (*name).to_owned())).collect());
        }
        // A module's own child may be named without `self`.
        child_name if modules.contains(&child(module, child_name)) => child(module, child_name),
        _ => return None,
    };
    from.extend(rest.iter().map(|name| (*name).to_owned()));
    Some(from)
}

/// The tokens of a source text, without comments and literals.
fn tokens(text: &str) -> Vec<&str> {
    let (mut tokens, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        if let Some(len) = passed_over(rest) {
            rest = &rest[len.min(rest.len())..];
            continue;
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let len = match first {
            first if is_word(first) => rest.find(|c: char| !is_word(c)).unwrap_or(rest.len()),
            _ if rest.starts_with("::") => 2,
            first => first.len_utf8(),
        };
        tokens.push(&rest[..len]);
        rest = &rest[len..];
    }
    tokens
}

/// The length in bytes of the space, comment or literal that a text begins with; `None` if it begins with none.
fn passed_over(text: &str) -> Option<usize> {
    let first = text.chars().next()?;
    if first.is_whitespace() {
        return Some(first.len_utf8());
    }
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        let (mut depth, mut at) = (0, 0);
        loop {
            match text.as_bytes().get(at..at + 2) {
                Some(b"/*") => (depth, at) = (depth + 1, at + 2),
                Some(b"*/") => (depth, at) = (depth - 1, at + 2),
                Some(_) => at += 1,
                None => return Some(text.len()),
            }
            if depth == 0 {
                return Some(at);
            }
        }
    }
    for prefix in ["r", "br", "cr"] {
        let Some(rest) = text.strip_prefix(prefix) else { continue };
        let hashes = rest.len() - rest.trim_start_matches('#').len();
        if rest[hashes..].starts_with('"') {
            let start = prefix.len() + hashes + 1;
            let end = format!("\"{}", "#".repeat(hashes));
            return Some(text[start..].find(&end).map_or(text.len(), |at| start + at + end.len()));
        }
    }
    let (prefix, quoted) = match text.strip_prefix(['b', 'c']) {
        Some(rest) if rest.starts_with(['"', '\'']) => (1, rest),
        _ => (0, text),
    };
    if let Some(string) = quoted.strip_prefix('"') {
        let mut is_escaped = false;
        let end = string.find(|c: char| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        return Some(end.map_or(text.len(), |end| prefix + end + 2));
    }
    let character = quoted.strip_prefix('\'')?;
    if character.starts_with('\\') {
        let end = character[2..].find('\'');
        return Some(end.map_or(text.len(), |end| prefix + 1 + 2 + end + 1));
    }
    let one = character.chars().next()?.len_utf8();
    // Otherwise it is a lifetime, whose name is a word like others.
    Some(if character[one..].starts_with('\'') { prefix + one + 2 } else { prefix + 1 })
}

/// If an attribute begins here: whether it is `cfg(test)`, and where it ends.
fn attribute(tokens: &[&str], at: usize) -> Option<(bool, usize)> {
    if tokens.get(at..at + 2)? != ["#", "["] {
        return None;
    }
    let mut depth = 0;
    let len = tokens[at + 1..].iter().position(|token| {
        depth += i32::from(*token == "[") - i32::from(*token == "]");
        depth == 0
    })?;
    let inside = &tokens[at + 2..at + 1 + len];
    let is_test =
        inside.starts_with(&["cfg", "(", "test"]) || inside.starts_with(&["cfg", "(", "all", "(", "test"]);
    Some((is_test, at + 2 + len))
}

/// Where the item or field behind an attribute ends.
fn end_of(tokens: &[&str], mut at: usize) -> usize {
    while let Some((_, end)) = attribute(tokens, at) {
        at = end;
    }
    if tokens.get(at) == Some(&"pub") {
        at += 1;
        if tokens.get(at) == Some(&"(") {
            at += tokens[at..].iter().position(|token| *token == ")").map_or(0, |close| close + 1);
        }
    }
    const ITEMS: &[&str] = &[
        "async",
        "const",
        "enum",
        "extern",
        "fn",
        "impl",
        "macro_rules",
        "mod",
        "static",
        "struct",
        "trait",
        "type",
        "unsafe",
        "use",
    ];
    let is_item = tokens.get(at).is_some_and(|token| ITEMS.contains(token));
    let mut depth = 0;
    while let Some(token) = tokens.get(at) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 0 => return at,
            "}" if depth == 1 && is_item => return at + 1,
            ")" | "]" | "}" => depth -= 1,
            ";" if depth == 0 => return at + 1,
            "," if depth == 0 && !is_item => return at + 1,
            _ => {}
        }
        at += 1;
    }
    at
}

/// The tokens without the items and fields that only tests have.
fn without_tests<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let (mut code, mut at) = (Vec::new(), 0);
    while let Some(token) = tokens.get(at) {
        match attribute(tokens, at) {
            Some((true, end)) => at = end_of(tokens, end),
            _ => {
                code.push(*token);
                at += 1;
            }
        }
    }
    code
}

/// The names of modules in files of their own that only tests have.
fn test_modules<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let mut modules = Vec::new();
    for at in 0..tokens.len() {
        let Some((true, end)) = attribute(tokens, at) else { continue };
        let item = &tokens[end..end_of(tokens, end)];
        let name = item.iter().position(|token| *token == "mod").and_then(|at| item.get(at + 1));
        if item.last() == Some(&";") {
            modules.extend(name);
        }
    }
    modules
}

/// All paths in a source that begin with `crate`, `self` or `super`.
fn named_in<'a>(code: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut named = Vec::new();
    for (at, token) in code.iter().enumerate() {
        let is_head = ["crate", "self", "super"].contains(token) && code.get(at + 1) == Some(&"::");
        // `pub(in crate::module)` needs nothing.
        let goes_on = at > 0 && ["::", "in"].contains(&code[at - 1]);
        if is_head && !goes_on {
            named.extend(tree(code, at).0.into_iter().map(|(_, path)| path));
        }
    }
    named
}

/// What the `use` declarations of a source bring in: the name there, and the path.
fn used_in<'a>(code: &[&'a str]) -> Vec<(String, Vec<&'a str>)> {
    let uses = code.iter().enumerate().filter(|(_, token)| **token == "use");
    uses.flat_map(|(at, _)| tree(code, at + 1).0).map(|(name, path)| (name.to_owned(), path)).collect()
}

/// The name of a path's end, and the path.
type Leaf<'a> = (&'a str, Vec<&'a str>);

/// The paths of a tree such as `a::{b, c as d}` that begins here, and where the tree ends.
fn tree<'a>(code: &[&'a str], mut at: usize) -> (Vec<Leaf<'a>>, usize) {
    let is_word = |token: &str| token.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let mut path: Vec<&str> = Vec::new();
    while let Some(token) = code.get(at).copied() {
        match token {
            "{" => {
                let mut leaves = Vec::new();
                at += 1;
                while code.get(at).is_some_and(|token| *token != "}") {
                    if code[at] == "," {
                        at += 1;
                        continue;
                    }
                    let (below, end) = tree(code, at);
                    let name_of = |name, below: &[&'a str]| match below {
                        ["self"] if name == "self" => path.last().copied().unwrap_or(name),
                        _ => name,
                    };
                    leaves.extend(below.into_iter().map(|(name, below)| {
                        let name = name_of(name, &below);
                        let below = below.into_iter().filter(|word| *word != "self");
                        (name, path.iter().copied().chain(below).collect())
                    }));
                    // Skips what is no tree.
                    at = end.max(at + 1);
                }
                return (leaves, at + 1);
            }
            // What a glob brings in is not known here; uses of it through a longer path are found there.
            "*" => return (vec![("*", path)], at + 1),
            word if is_word(word) => path.push(word),
            _ => return (Vec::new(), at),
        }
        at += 1;
        let goes_on = code.get(at) == Some(&"::")
            && code.get(at + 1).is_some_and(|next| is_word(next) || *next == "{" || *next == "*");
        if !goes_on {
            break;
        }
        at += 1;
    }
    let mut name = path.last().copied().unwrap_or_default();
    if code.get(at) == Some(&"as")
        && let Some(alias) = code.get(at + 1)
    {
        (name, at) = (alias, at + 2);
    }
    (vec![(name, path)], at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
        let cycles = Sources::new(files).cycles();
        cycles
            .iter()
            .map(|cycle| format!("{}: {}", cycle.folder.join("/"), cycle.members.join(" ")))
            .collect()
    }

    #[test]
    fn a_cycle_is_found_however_it_is_written() {
        let b = ("b/mod.rs", "pub(crate) use inner::Inner;\nmod inner;");
        let inner = ("b/inner.rs", "use crate::a::One; pub(crate) struct Inner;");
        for a in [
            "use crate::b::Inner;",
            "use crate::{b::{Inner as I, other}, c};",
            "fn f() -> crate::b::Inner { super::b::Inner }",
            "use super::b;",
            "use crate::Inner;",
        ] {
            let root = ("lib.rs", "mod a; mod b; mod c; pub use b::Inner;");
            let found = cycles(&[root, ("a.rs", a), b, inner, ("c.rs", "")]);
            assert_eq!(found, [": a b"], "{a}");
        }
    }

    #[test]
    fn what_is_no_cycle_is_not_taken_for_one() {
        let root = ("lib.rs", "mod a; mod b;");
        let b = ("b/mod.rs", "use crate::a::One;");
        for a in [
            "// use crate::b::Inner;",
            "/* use /* */ crate::b::Inner; */",
            "const S: &str = \"crate::b::Inner \\\" crate::b\"; const T: &str = r#\"\" crate::b::\"#; const C: char = '\"';",
            "#[cfg(test)] mod tests { use crate::b::Inner; fn f<A, B>() {} }",
            "struct A { #[cfg(test)] b: crate::b::Inner, a: u8 }",
            "#[cfg(all(test, unix))] use crate::b::{Inner, Outer};",
            "pub(in crate::b) fn f<'a>(a: &'a str) {}",
            "use other::b::Inner;",
        ] {
            assert_eq!(cycles(&[root, ("a.rs", a), b, ("b/inner.rs", "")]), [""; 0], "{a}");
        }
        // A file that only tests have.
        let a = ("a/mod.rs", "#[cfg(test)]\nmod tests;");
        assert_eq!(cycles(&[root, a, ("a/tests.rs", "use crate::b::Inner;"), b]), [""; 0]);
        // Files side by side, and a folder and what lies in it.
        let files = [root, ("b/mod.rs", "mod c; mod d; use c::C;"), ("b/c.rs", "use super::d::D;")];
        assert_eq!(cycles(&[&files[..], &[("b/d.rs", "use super::c::C;")]].concat()), [""; 0]);
    }

    #[test]
    fn a_cycle_by_way_of_others_is_told_with_its_reasons() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a/x.rs", "use crate::b::B;"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "use crate::a::x::X;"),
        ];
        let files = files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
        let cycles = Sources::new(files).cycles();
        assert_eq!(cycles[0].members, ["a", "b", "c"]);
        assert!(cycles[0].reasons.contains("a needs b: a/x.rs (b::B)"), "{}", cycles[0].reasons);
    }
}
