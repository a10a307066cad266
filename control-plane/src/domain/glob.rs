//! Patterns over ids and names: `*` stands for any characters, `?` for one. Nothing else is special.

/// Whether the whole of `text` fits `pattern`. Takes at most the product of their lengths.
#[must_use]
pub fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut seen) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while seen < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(&wanted) if wanted == '?' || wanted == text[seen] => {
                at += 1;
                seen += 1;
            }
            _ => match star {
                // The last star takes one more character, and the rest is tried again.
                Some((back, from)) => {
                    star = Some((back, from + 1));
                    at = back + 1;
                    seen = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&wanted| wanted == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stars_and_question_marks_stand_for_what_they_should() {
        for (pattern, text, want) in [
            ("*", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("agent_0*", "agent_01", true),
            ("agent_0*", "agent_1", false),
            ("*b*b", "abab", true),
            ("*b*b", "aba", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(fits(pattern, text), want, "{pattern} {text}");
        }
    }

    fn slow(pattern: &[char], text: &[char]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), _) => {
                slow(rest, text) || text.split_first().is_some_and(|(_, less)| slow(pattern, less))
            }
            (Some((wanted, rest)), Some((seen, less))) => {
                (*wanted == '?' || wanted == seen) && slow(rest, less)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_plain_definition(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            let want = slow(&pattern.chars().collect::<Vec<_>>(), &text.chars().collect::<Vec<_>>());
            prop_assert_eq!(fits(&pattern, &text), want);
        }
    }
}
