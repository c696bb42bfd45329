//! One line into its fields.

use std::borrow::Cow;

use super::Delimiter;

/// The fields of a line, as they stand, quotes included. A field whose first byte after spaces is a quote ends with the
/// quote that closes it; none when it does not close.
pub fn split<'l>(line: &'l [u8], delimiter: Delimiter, fields: &mut Vec<&'l [u8]>) -> Option<()> {
    fields.clear();
    match delimiter {
        Delimiter::Byte(byte) => split_at_byte(line, byte, fields),
        Delimiter::Spaces => {
            fields.extend(line.split(|byte| byte.is_ascii_whitespace()).filter(|field| !field.is_empty()));
            // Spaces within quotes would be taken for delimiters.
            let is_cut = |field: &&[u8]| field.starts_with(b"\"") && (field.len() == 1 || !field.ends_with(b"\""));
            if fields.iter().any(is_cut) { None } else { Some(()) }
        }
    }
}

fn split_at_byte<'l>(line: &'l [u8], delimiter: u8, fields: &mut Vec<&'l [u8]>) -> Option<()> {
    let mut rest = line;
    loop {
        let is_space = |byte: &u8| byte.is_ascii_whitespace() && *byte != delimiter;
        let spaces_from = |at: usize| rest[at..].iter().take_while(|byte| is_space(byte)).count();
        let start = spaces_from(0);
        let end = if rest.get(start) == Some(&b'"') {
            let closed = start + quoted_end(&rest[start..])?;
            closed + spaces_from(closed)
        } else {
            memchr::memchr(delimiter, rest).unwrap_or(rest.len())
        };
        fields.push(&rest[..end]);
        match rest.get(end) {
            None => return Some(()),
            Some(byte) if *byte == delimiter => rest = &rest[end + 1..],
            // Text after a closing quote.
            Some(_) => return None,
        }
    }
}

/// Where a quoted field ends. Two quotes inside it are one.
fn quoted_end(field: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        at += memchr::memchr(b'"', &field[at..])? + 1;
        if field.get(at) != Some(&b'"') {
            return Some(at);
        }
        at += 1;
    }
}

/// What a field says: without spaces around it and without its quotes.
pub(super) fn content(field: &[u8]) -> Cow<'_, [u8]> {
    let trimmed = field.trim_ascii();
    match trimmed {
        [b'"', inner @ .., b'"'] if memchr::memchr(b'"', inner).is_some() => {
            let mut plain = Vec::with_capacity(inner.len());
            let mut quotes = 0;
            for byte in inner {
                quotes = if *byte == b'"' { quotes + 1 } else { 0 };
                if quotes != 2 {
                    plain.push(*byte);
                } else {
                    quotes = 0;
                }
            }
            Cow::Owned(plain)
        }
        [b'"', inner @ .., b'"'] => Cow::Borrowed(inner),
        plain => Cow::Borrowed(plain),
    }
}

/// A line without its end, or none when nothing stands in it: it is empty or a comment.
pub(super) fn meant(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line.trim_ascii_start().first() {
        None | Some(b'#' | b'%') => None,
        Some(_) => Some(line),
    }
}

/// The lines of a block with their numbers from 0, without line ends.
pub(super) fn lines(block: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let text = block.strip_suffix(b"\n").unwrap_or(block);
    (0..).zip(text.split(|byte| *byte == b'\n'))
}

/// A whole number from 0 on and below 2^63.
pub(super) fn natural(field: &[u8]) -> Option<u64> {
    if field.is_empty() || field.len() > 30 {
        return None;
    }
    let mut value = 0u64;
    for byte in field {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value).filter(|value| i64::try_from(*value).is_ok())
}

/// A whole number.
pub(super) fn integer(field: &[u8]) -> Option<i64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// A number of single precision.
pub(super) fn float(field: &[u8]) -> Option<f32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields_of(line: &str, delimiter: Delimiter) -> Option<Vec<String>> {
        let mut fields = Vec::new();
        split(line.as_bytes(), delimiter, &mut fields)?;
        Some(fields.into_iter().map(|field| String::from_utf8(content(field).into_owned()).unwrap()).collect())
    }

    #[test]
    fn fields_with_quotes_spaces_and_nothing_in_them() {
        let comma = Delimiter::Byte(b',');
        for (line, expected) in [
            ("a,b", Some(&["a", "b"][..])),
            ("a, b ,", Some(&["a", "b", ""])),
            ("\"a,b\",c", Some(&["a,b", "c"])),
            ("\"a \"\"b\"\"\",\"\"\"\",\"\"", Some(&["a \"b\"", "\"", ""])),
            ("\"a,b\" , \" c,\"\t", Some(&["a,b", " c,"])),
            ("\"a", None),
            ("a, \"b", None),
            ("\"a\"b,c", None),
            ("\"a\" b,c", None),
        ] {
            let expected: Option<Vec<String>> = expected.map(|words| words.iter().map(|w| (*w).to_owned()).collect());
            assert_eq!(fields_of(line, comma), expected, "{line}");
        }
        assert_eq!(fields_of("\t\"a\t\"\t", Delimiter::Byte(b'\t')), Some(vec!["".into(), "a\t".into(), "".into()]));
        assert_eq!(fields_of("  1 \t 2", Delimiter::Spaces), Some(vec!["1".into(), "2".into()]));
        assert_eq!(fields_of("\"a\" b", Delimiter::Spaces), Some(vec!["a".into(), "b".into()]));
        assert_eq!(fields_of("\"a b\" c", Delimiter::Spaces), None);
    }

    #[test]
    fn numbers() {
        assert_eq!([&b"0"[..], b"007", b"9223372036854775807"].map(natural), [Some(0), Some(7), Some((1 << 63) - 1)]);
        for bad in [&b""[..], b"-1", b"+1", b"1.0", b"9223372036854775808", b"99999999999999999999999", b"1 "] {
            assert_eq!(natural(bad), None);
        }
    }

    #[test]
    fn comments_and_empty_lines_mean_nothing() {
        assert_eq!(meant(b"1,2\r"), Some(&b"1,2"[..]));
        assert!([&b"# 1"[..], b"%", b"", b" \r", b"  # x"].into_iter().all(|line| meant(line).is_none()));
        assert_eq!(lines(b"a\n\nb").map(|(at, _)| at).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(lines(b"a\nb\n").count(), 2);
    }
}
