//! Sums as people write them: numbers, `+ - * / ^` and brackets.

/// How deep brackets may stand, and signs before them.
const DEPTH: usize = 64;
/// Characters of one sum.
const LENGTH: usize = 1_000;

/// What a sum comes to.
pub(super) fn calculate(text: &str) -> Result<f64, String> {
    if text.chars().count() > LENGTH {
        return Err(format!("a sum of more than {LENGTH} characters"));
    }
    let mut sum = Sum {
        rest: text.trim_start(),
        depth: 0,
    };
    let value = sum.terms()?;
    match sum.rest.chars().next() {
        Some(c) => Err(format!("{c:?} where the sum should end")),
        None if value.is_finite() => Ok(value),
        None => Err("no number comes of it".to_owned()),
    }
}

struct Sum<'a> {
    rest: &'a str,
    depth: usize,
}

impl Sum<'_> {
    fn takes(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn terms(&mut self) -> Result<f64, String> {
        let mut value = self.factors()?;
        loop {
            if self.takes('+') {
                value += self.factors()?;
            } else if self.takes('-') {
                value -= self.factors()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn factors(&mut self) -> Result<f64, String> {
        let mut value = self.power()?;
        loop {
            if self.takes('*') {
                value *= self.power()?;
            } else if self.takes('/') {
                let by = self.power()?;
                if by == 0.0 {
                    return Err("a division by 0".to_owned());
                }
                value /= by;
            } else {
                return Ok(value);
            }
        }
    }

    /// `-2^2` is -4, and `2^3^2` is 512.
    fn power(&mut self) -> Result<f64, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(format!(
                "more than {DEPTH} brackets and signs within each other"
            ));
        }
        let value = if self.takes('-') {
            -self.power()?
        } else {
            let base = self.atom()?;
            if self.takes('^') {
                base.powf(self.power()?)
            } else {
                base
            }
        };
        self.depth -= 1;
        Ok(value)
    }

    fn atom(&mut self) -> Result<f64, String> {
        if self.takes('(') {
            let value = self.terms()?;
            return if self.takes(')') {
                Ok(value)
            } else {
                Err("a bracket that is not closed".to_owned())
            };
        }
        let is_part = |c: char| c.is_ascii_digit() || c == '.';
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        let seen = self.rest.chars().next();
        self.rest = rest.trim_start();
        number.parse().map_err(|_| match seen {
            Some(c) if number.is_empty() => format!("{c:?} where a number should stand"),
            Some(_) => format!("{number} is no number"),
            None => "the sum ends where a number should stand".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_done_in_their_order() {
        for (text, value) in [
            ("2+3", 5.0),
            (" 2 + 3 * 4 ", 14.0),
            ("(2+3)*4", 20.0),
            ("-2^2", -4.0),
            ("2^3^2", 512.0),
            ("10/4-1", 1.5),
            ("--1", 1.0),
            (".5*2", 1.0),
        ] {
            assert_eq!(calculate(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_is_no_sum_is_said() {
        let deep = "(".repeat(1_000);
        let long = "1+".repeat(600);
        for (text, said) in [
            ("", "ends"),
            ("2+", "ends"),
            ("2 3", "'3'"),
            ("1/0", "division"),
            ("1.2.3", "1.2.3"),
            ("(1", "closed"),
            ("two", "'t'"),
            ("9^9^9", "no number"),
            (&deep, "brackets"),
            (&long, "characters"),
        ] {
            let why = calculate(text).unwrap_err();
            assert!(why.contains(said), "{text}: {why}");
        }
    }
}
