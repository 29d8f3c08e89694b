//! Words for people: what somebody may have meant, numbers of things, and what to do where the system refuses something.

use std::cmp::Ordering;

/// The two of `known` that look most like `word`, the nearest first.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<(f64, &str)> = known.into_iter().map(|name| (strsim::jaro_winkler(word, name), name)).collect();
    // A stable sort: among equals the order of the list decides.
    all.sort_by(|one, two| two.0.partial_cmp(&one.0).unwrap_or(Ordering::Equal));
    all.into_iter().take(2).map(|(_, name)| name).collect()
}

/// A part of a sentence that names the two nearest, as `the nearest are cache and journal`.
pub fn the_nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(word, known)[..] {
        [] => "there is none".into(),
        [one] => format!("there is {one} only"),
        ref two => format!("the nearest are {}", two.join(" and ")),
    }
}

/// A count and its noun: `1 chunk`, `2 chunks`.
pub fn counted(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// What to do where the system does not permit something: `for_users`, unless this is root, whom no other user can help.
pub fn not_permitted(for_users: &str) -> &str {
    advice(rustix::process::geteuid().is_root(), for_users)
}

fn advice(root: bool, for_users: &str) -> &str {
    match root {
        true => "not even root may do it here; a container or a security module forbids it, so run it outside of that",
        false => for_users,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_are_found() {
        let known = ["cache", "cache-pages", "host-sync", "journal", "survivor"];
        assert_eq!(nearest("cach", known), ["cache", "cache-pages"]);
        assert_eq!(nearest("surviver", known)[0], "survivor");
        assert_eq!(nearest("colour", known).len(), 2);
        assert_eq!(the_nearest("hostsync", ["host-sync"]), "there is host-sync only");
        assert_eq!(the_nearest("x", []), "there is none");
        assert_eq!(the_nearest("cach", known), "the nearest are cache and cache-pages");
    }

    #[test]
    fn one_thing_has_no_s() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "chunk")), ["0 chunks", "1 chunk", "2 chunks"]);
    }

    #[test]
    fn root_is_not_told_to_become_root() {
        assert_eq!(advice(false, "run it as root"), "run it as root");
        assert!(!advice(true, "run it as root").contains("as root"));
    }
}
