//! File names out of names that people chose.
//!
//! Node types and relations are named by whoever made the data, slashes and all. The manifest keeps those names; files get
//! one that every system and every shell can bear. That is a one-way street, so nothing is ever read back out of a name.

/// Longer names are cut and end in a part of their checksum; systems allow 255 bytes.
const MOST_BYTES: usize = 150;

/// The file that an array of this name lies in.
pub(super) fn file_name(name: &str) -> String {
    let mut plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    if plain.is_empty() || plain.starts_with(['.', '-']) {
        plain.insert(0, '_');
    }
    if plain.len() > MOST_BYTES {
        // The ending says what the array is; it stays, unless it is what is long.
        let ending = plain.rsplit_once('.').map(|(_, ending)| format!(".{ending}"));
        let ending = ending.filter(|ending| ending.len() < MOST_BYTES / 2).unwrap_or_default();
        let fits = |(at, c): &(usize, char)| at + c.len_utf8() + ending.len() <= MOST_BYTES;
        let kept: String = plain.char_indices().take_while(fits).map(|(_, c)| c).collect();
        let sum = &blake3::hash(name.as_bytes()).to_hex()[..12];
        plain = format!("{kept}~{sum}{ending}");
    }
    format!("{plain}.npy")
}

/// Whether a manifest may name this file: one in the folder itself, in plain sight.
pub(super) fn is_file_name(name: &str) -> bool {
    name.ends_with(".npy") && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
}

fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_files() {
        let long = format!("{}.offsets", "/film/film".repeat(30));
        for (name, expected) in [
            ("author__writes__paper.neighbours", "author__writes__paper.neighbours.npy"),
            ("/a b/c.features", "_a_b_c.features.npy"),
            ("", "_.npy"),
            ("../../etc", "_.._.._etc.npy"),
            ("-rf", "_-rf.npy"),
            ("größe", "größe.npy"),
        ] {
            assert_eq!(file_name(name), expected);
            assert!(is_file_name(expected));
        }
        let cut = file_name(&long);
        assert!(cut.len() < 200 && cut.ends_with(".offsets.npy") && is_file_name(&cut), "{cut}");
        assert_ne!(cut, file_name(&format!("x{long}")));
        assert!(file_name(&"é.".repeat(300)).len() < 200);
        assert!(file_name(&format!("a.{}", "é".repeat(300))).len() < 200);
    }

    #[test]
    fn manifests_may_not_lead_elsewhere() {
        for name in ["../x.npy", "/x.npy", "a/b.npy", ".hidden.npy", "x.npy\0", "x.txt", "", "a\\b.npy"] {
            assert!(!is_file_name(name), "{name:?}");
        }
    }
}
