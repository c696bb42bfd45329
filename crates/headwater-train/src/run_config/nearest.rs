//! The known word that an unknown one looks most like.

/// The nearest of `known`, if it is near enough to be what was meant.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_ascii_lowercase().replace('-', "_");
    let distances = known.iter().map(|&name| (distance(&word, name), name));
    let near = |&(distance, name): &(usize, &str)| distance <= 1 + name.len() / 4;
    distances.filter(near).min_by_key(|&(distance, _)| distance).map(|(_, name)| name)
}

/// Letters that must be put in, left out, exchanged or swapped with their neighbour to get from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    // Only the last two rows of the table are looked at.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for i in 0..from.len() {
        let mut row = vec![i + 1];
        for j in 0..to.len() {
            let exchanged = last[j] + usize::from(from[i] != to[j]);
            let swaps = i > 0 && j > 0 && from[i] == to[j - 1] && from[i - 1] == to[j];
            let swapped = if swaps { before[j - 1] + 1 } else { usize::MAX };
            row.push(exchanged.min(swapped).min(last[j + 1] + 1).min(row[j] + 1));
        }
        before = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (from, to, expected) in [
            ("", "", 0),
            ("rate", "rate", 0),
            ("rate", "", 4),
            ("", "gat", 3),
            ("raet", "rate", 1),
            ("fan", "fanout", 3),
            ("hiden", "hidden", 1),
            ("gcm", "gcn", 1),
        ] {
            assert_eq!(distance(from, to), expected, "{from} {to}");
        }
    }

    #[test]
    fn only_what_is_near_is_meant() {
        let known = ["dropout", "attention_dropout", "decay", "rate"];
        for (word, expected) in [
            ("drop_out", Some("dropout")),
            ("Attention-Dropout", Some("attention_dropout")),
            ("decai", Some("decay")),
            ("learning_rate", None),
            ("", None),
            (&"x".repeat(1000), None),
        ] {
            assert_eq!(nearest(word, &known), expected, "{word}");
        }
    }
}
