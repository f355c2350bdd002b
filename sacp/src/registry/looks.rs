//! Names that are mistaken for one another.

/// A name without the differences that readers overlook: names with equal looks are mistaken for one another.
pub(super) fn looks(name: &str) -> String {
    let look = |c: char| match c.to_ascii_lowercase() {
        '0' => Some('o'),
        '1' | 'i' | '|' => Some('l'),
        '5' => Some('s'),
        '.' | '_' | ':' | '-' => None,
        other => Some(other),
    };
    name.chars().filter_map(look).collect()
}
