use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

fn folder(path: &Path) -> Folder {
    Folder {
        path: path.to_owned(),
        no_ignore: false,
        excluded: None,
    }
}

fn on(_: usize) -> bool {
    true
}

/// Five files that count, and everything that does not.
fn sample() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &[u8]| {
        let place = dir.path().join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
    };
    put(
        "src/main.rs",
        b"fn main() {}\n// TODO: more\nlet TODOS = 1; // FIXME and TODO\nno newline at the end",
    );
    put("src/copy.rs", b"same\n");
    put(".hidden/copy.txt", b"same\n");
    put("data.bin", b"\0binary\nlines\n");
    put("latin.txt", b"caf\xe9\nTODO\n");
    put(".gitignore", b"ignored*\n");
    put("ignored.txt", b"TODO\n");
    put("sub/.ignore", b"also\n");
    put("sub/also", b"x\n");
    put(".git/config", b"[core]\n");
    symlink("main.rs", dir.path().join("src/link.rs")).unwrap();
    symlink("nowhere", dir.path().join("broken")).unwrap();
    symlink(".", dir.path().join("loop")).unwrap();
    dir
}

#[test]
fn regular_files_count_once_hidden_ones_too() {
    let dir = sample();
    let figures = languages(&folder(dir.path()), &mut on).unwrap();
    // main, copy, hidden copy, data, latin, .gitignore, sub/.ignore
    assert_eq!((figures.files, figures.lines), (7, 3 + 1 + 1 + 2 + 1 + 1));
    assert_eq!(figures.languages["Rust"].files, 2);
    let sum: u64 = figures.languages.values().map(|l| l.bytes).sum();
    assert_eq!(sum, figures.bytes);
    let all = languages(
        &Folder {
            no_ignore: true,
            ..folder(dir.path())
        },
        &mut on,
    )
    .unwrap();
    assert_eq!(all.files, 9);
    let excluded = Folder {
        excluded: Some(dir.path().join("src")),
        ..folder(dir.path())
    };
    assert_eq!(languages(&excluded, &mut on).unwrap().files, 5);
}

#[test]
fn notes_are_whole_words_of_text_files() {
    let dir = sample();
    let (found, more) = notes(&folder(dir.path()), &mut on).unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|n| (n.path.as_str(), n.line, n.kind.as_str()))
        .collect();
    let expected = [
        ("latin.txt", 2, "TODO"),
        ("src/main.rs", 2, "TODO"),
        ("src/main.rs", 3, "TODO"),
        ("src/main.rs", 3, "FIXME"),
    ];
    assert_eq!((found.as_slice(), more), (expected.as_slice(), 0));
}

#[test]
fn duplicates_are_files_of_equal_content() {
    let dir = sample();
    fs::write(dir.path().join("other"), b"sama\n").unwrap();
    let (groups, more) = duplicates(&folder(dir.path()), &mut on).unwrap();
    assert_eq!(
        (groups, more),
        (
            vec![vec![
                ".hidden/copy.txt".to_owned(),
                "src/copy.rs".to_owned()
            ]],
            0
        )
    );
}

#[test]
fn secrets_give_place_and_kind() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("env"),
        "A=1\nDB_PASSWORD=\"correct horse\"\nAPI_KEY=abcdef12345\n",
    )
    .unwrap();
    let (found, _) = secrets(&folder(dir.path()), &mut on).unwrap();
    assert_eq!(
        found,
        [Note {
            path: "env".into(),
            line: 3,
            kind: "assignment".into()
        }]
    );
}

#[test]
fn lists_are_cut_and_count_what_they_leave_out() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("many"), "TODO\n".repeat(LISTED + 7)).unwrap();
    for n in 0..30u8 {
        fs::write(dir.path().join(format!("f{n}")), vec![n; usize::from(n)]).unwrap();
    }
    let (found, more) = notes(&folder(dir.path()), &mut on).unwrap();
    assert_eq!((found.len(), more), (LISTED, 7));
    let big = largest(&folder(dir.path()), &mut on).unwrap();
    assert_eq!(
        (big.len(), big[0].path.as_str(), big[1].path.as_str()),
        (LARGEST, "many", "f29")
    );
}

#[test]
fn long_lines_and_pieces_keep_their_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let long = "x".repeat(700_000);
    fs::write(
        dir.path().join("long"),
        format!("{long} TODO\n{long}\nTODO\n"),
    )
    .unwrap();
    let (found, _) = notes(&folder(dir.path()), &mut on).unwrap();
    assert_eq!(found.iter().map(|n| n.line).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(languages(&folder(dir.path()), &mut on).unwrap().lines, 3);
}

#[test]
fn a_pass_stops_when_it_is_told_to() {
    let dir = sample();
    let stopped = notes(&folder(dir.path()), &mut |_: usize| false);
    assert!(matches!(stopped, Err(ScanError::Canceled)));
    assert!(matches!(
        languages(&folder(Path::new("/no/such")), &mut on),
        Err(ScanError::Folder { .. })
    ));
}

#[test]
fn the_tree_digest_follows_every_change() {
    let dir = sample();
    let digest = || tree_digest(&folder(dir.path()), &mut on).unwrap().0;
    let before = digest();
    assert_eq!(digest(), before);
    fs::write(dir.path().join("ignored.txt"), b"other").unwrap();
    assert_eq!(digest(), before);
    fs::write(dir.path().join("latin.txt"), b"caf\xe9\nTODO\n").unwrap();
    assert_ne!(digest(), before);
    let now = digest();
    fs::rename(dir.path().join("data.bin"), dir.path().join("moved.bin")).unwrap();
    assert_ne!(digest(), now);
}

#[test]
fn a_large_group_of_copies_is_cut_as_a_list_is() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..LISTED + 3 {
        fs::write(dir.path().join(n.to_string()), "").unwrap();
    }
    let (groups, more) = duplicates(&folder(dir.path()), &mut on).unwrap();
    assert_eq!((groups.len(), groups[0].len(), more), (1, LISTED, 3));
}

#[test]
fn rules_that_cannot_be_read_to_their_end_leave_their_folder_out() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let dir = tempfile::tempdir().unwrap();
    for name in ["pipe", "huge", "good"] {
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::write(dir.path().join(name).join("a.rs"), "a\n").unwrap();
    }
    let pipe = dir.path().join("pipe/.gitignore");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
    fs::write(dir.path().join("huge/.ignore"), vec![b'#'; (1 << 20) + 1]).unwrap();
    let figures = languages(&folder(dir.path()), &mut on).unwrap();
    assert_eq!(figures.files, 1);
    let paths = figures.unreadable.iter().map(|entry| entry.path.as_str());
    assert_eq!(
        paths.collect::<std::collections::BTreeSet<_>>(),
        ["huge", "pipe"].into()
    );
    let all = Folder {
        no_ignore: true,
        ..folder(dir.path())
    };
    assert_eq!(languages(&all, &mut on).unwrap().files, 4);
    fs::rename(pipe, dir.path().join(".ignore")).unwrap();
    assert!(matches!(
        languages(&folder(dir.path()), &mut on),
        Err(ScanError::Folder { .. })
    ));
}

#[test]
fn a_name_that_holds_the_mark_of_a_private_key_is_shown_without_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("-----BEGIN PRIVATE KEY-----"), "x").unwrap();
    let largest = largest(&folder(dir.path()), &mut on).unwrap();
    assert_eq!(largest[0].path, "-----BEGIN PRIVATE KEY\u{2026}");
}
