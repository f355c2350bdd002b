//! Names that are mistaken for one another.

/// A name without the differences that readers overlook: names with equal looks are mistaken for one another.
pub(crate) fn looks(name: &str) -> String {
    let look = |c: char| match plain(c).to_ascii_lowercase() {
        '0' => Some('o'),
        '1' | 'i' | '|' => Some('l'),
        '5' => Some('s'),
        '.' | '_' | ':' | '-' => None,
        other => Some(other),
    };
    name.chars().filter_map(look).collect()
}

/// The Latin letter or digit that a letter of another script looks like: Cyrillic, Greek and the full width forms.
fn plain(c: char) -> char {
    /// Letters of other scripts, and what they look like.
    const LETTERS: [(&str, &str); 2] = [
        (
            "АВЕЅІЈКМНОРСТУХҮԚԜабвеѕіјкмнорстухүһԁԛԝгɡı",
            "ABESIJKMHOPCTYXYQWa6beslJkmhopctyxyhdqwrgl",
        ),
        ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαικνορτυχ", "ABEZHIKMNOPTYXaikvoptux"),
    ];
    if c.is_ascii() {
        return c;
    }
    if let Some(narrow) = (u32::from(c)).checked_sub(0xFEE0).and_then(char::from_u32)
        && ('\u{FF01}'..='\u{FF5E}').contains(&c)
    {
        return narrow;
    }
    let like = LETTERS.iter().find_map(|(others, latin)| {
        let place = others.chars().position(|other| other == c)?;
        latin.chars().nth(place)
    });
    like.unwrap_or(c)
}
