//! The clause registers against the tests: `<crate>/requirements.toml` says what is proved, and a test that
//! cites the clause (`// spec: ID`) must be there.
//!
//! | key | what it says |
//! |---|---|
//! | `id`, `level`, `text` | the clause; the level is MUST, SHOULD or BEYOND |
//! | `status` | `tested`, `by-type`, `exception` or `todo` |
//! | `reason` | why no test can fail (`by-type`), or why it is not kept (`exception`) |
//! | `code` | optional: why no `// impl: ID` stands at any code (`scripts/proof check` asks a MUST for one or the other) |
//!
//! A register with `complete = false` belongs to a crate that is being built: its open MUST clauses are
//! counted and printed. Without it, an open MUST clause fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(serde::Deserialize)]
struct Register {
    #[serde(default = "yes")]
    complete: bool,
    #[serde(default)]
    clause: Vec<Clause>,
}

#[derive(serde::Deserialize)]
struct Clause {
    id: String,
    level: String,
    text: String,
    status: String,
    #[serde(default)]
    reason: String,
    code: Option<String>,
}

fn yes() -> bool {
    true
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            if name != "target" && !name.to_string_lossy().starts_with('.') {
                rust_files(&path, found);
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The ids in a citing comment, each with its place, that stand within twelve lines above a test.
fn citations(root: &Path) -> BTreeMap<String, Vec<String>> {
    let mut files = Vec::new();
    rust_files(root, &mut files);
    let mut cited = BTreeMap::<String, Vec<String>>::new();
    let marks = ["#[test]", "::test]", "::test(", "#[rstest", "proptest!"];
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (n, line) in lines.iter().enumerate() {
            let Some((before, ids)) = line.split_once("spec: ") else {
                continue;
            };
            if !before
                .trim()
                .trim_end_matches('/')
                .trim_end_matches('!')
                .is_empty()
            {
                continue;
            }
            let place = format!("{}:{}", file.strip_prefix(root).unwrap().display(), n + 1);
            let below = &lines[n + 1..lines.len().min(n + 13)];
            if below
                .iter()
                .any(|l| marks.iter().any(|mark| l.contains(mark)))
            {
                for id in ids.split(',').map(str::trim).filter(|id| is_clause(id)) {
                    cited.entry(id.to_owned()).or_default().push(place.clone());
                }
            }
        }
    }
    cited
}

fn is_clause(id: &str) -> bool {
    let (prefix, rest) = id.split_once('-').unwrap_or_default();
    let upper = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit();
    !prefix.is_empty()
        && prefix.chars().all(upper)
        && rest.starts_with(|c: char| c.is_ascii_digit())
}

fn judge(
    name: &str,
    register: &Register,
    cited: &BTreeMap<String, Vec<String>>,
    known: &mut BTreeSet<String>,
) -> Vec<String> {
    let mut faults = Vec::new();
    for clause in &register.clause {
        let Clause {
            id,
            level,
            text,
            status,
            reason,
            code,
        } = clause;
        let mut fault = |what: &str| faults.push(format!("{name}: {id} {what}"));
        if !known.insert(id.clone()) {
            fault("is registered twice");
        }
        if !is_clause(id)
            || text.is_empty()
            || !["MUST", "SHOULD", "BEYOND"].contains(&level.as_str())
        {
            fault("has no proper id, level or text");
        }
        if code.as_deref().is_some_and(str::is_empty) {
            fault("has an empty reason for having no code");
        }
        match status.as_str() {
            "tested" if !cited.contains_key(id) => {
                fault("is registered as tested, and no test cites it")
            }
            "tested" => {}
            "by-type" | "exception" if reason.is_empty() => fault("needs a reason"),
            "by-type" | "exception" => {}
            "todo" if register.complete && level == "MUST" => fault("is a MUST left open"),
            "todo" => {}
            _ => fault("has an unknown status"),
        }
    }
    faults
}

#[test]
fn registers_agree_with_the_tests() {
    let root = root();
    let cited = citations(&root);
    let (mut faults, mut known) = (Vec::new(), BTreeSet::new());
    let mut registers: Vec<PathBuf> = fs::read_dir(&root)
        .unwrap()
        .map(|e| e.unwrap().path().join("requirements.toml"))
        .collect();
    registers.retain(|path| path.exists());
    registers.sort();
    assert!(
        !registers.is_empty(),
        "no register found below {}",
        root.display()
    );
    for path in registers {
        let name = path
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let register: Register = toml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let count = |status: &str| {
            register
                .clause
                .iter()
                .filter(|c| c.status == status)
                .count()
        };
        println!(
            "{name}: {} of {} clauses tested, {} open",
            count("tested"),
            register.clause.len(),
            count("todo")
        );
        faults.extend(judge(&name, &register, &cited, &mut known));
    }
    for (id, places) in &cited {
        if !known.contains(id) {
            faults.push(format!(
                "{}: cites {id}, which no register has",
                places.join(", ")
            ));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn registers_are_judged_by_every_rule() {
    let register = |status: &str, level: &str, reason: &str, complete: bool| Register {
        complete,
        clause: vec![Clause {
            id: "T-1".into(),
            level: level.into(),
            text: "holds".into(),
            status: status.into(),
            reason: reason.into(),
            code: None,
        }],
    };
    let faults = |register: &Register, cited: bool| {
        let cited = if cited {
            BTreeMap::from([("T-1".to_owned(), Vec::new())])
        } else {
            BTreeMap::new()
        };
        judge("t", register, &cited, &mut BTreeSet::new()).len()
    };
    assert_eq!(faults(&register("tested", "MUST", "", true), true), 0);
    assert_eq!(faults(&register("tested", "MUST", "", true), false), 1);
    assert_eq!(faults(&register("todo", "MUST", "", true), false), 1);
    assert_eq!(faults(&register("todo", "MUST", "", false), false), 0);
    assert_eq!(faults(&register("todo", "SHOULD", "", true), false), 0);
    assert_eq!(faults(&register("exception", "MUST", "", true), false), 1);
    assert_eq!(
        faults(
            &register("by-type", "MUST", "it has no setter", true),
            false
        ),
        0
    );
    assert_eq!(faults(&register("done", "MAY", "", true), false), 2);
    for (code, wanted) in [("", 1), ("an absence", 0)] {
        let mut without_code = register("tested", "MUST", "", true);
        without_code.clause[0].code = Some(code.into());
        assert_eq!(faults(&without_code, true), wanted);
    }
}
