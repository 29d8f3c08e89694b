//! Names and paths.
//!
//! A [`Name`] is valid by construction, so everything behind it (records above all) is bounded in size and needs no
//! further check. Paths are resolved lexically: there are no symbolic links, so `a/..` is where it started whether or
//! not `a` exists.

use super::{MetaError, Result};
use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Longest name of one file, in bytes.
pub const MAX_NAME: usize = 255;
/// Longest path, in bytes.
pub const MAX_PATH: usize = 4096;
/// Deepest path, in components.
pub const MAX_DEPTH: usize = 64;

/// The name of one file or directory in its directory: UTF-8, 1 to [`MAX_NAME`] bytes, neither `.` nor `..`, without
/// `/` and NUL. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks a name. [`MetaError::NameTooLong`], [`MetaError::InvalidName`].
    pub fn new(name: &str) -> Result<Name> {
        if name.len() > MAX_NAME {
            return Err(MetaError::NameTooLong);
        }
        if name.is_empty() || name == "." || name == ".." || name.bytes().any(|b| b == b'/' || b == 0) {
            return Err(MetaError::InvalidName);
        }
        Ok(Name(name.into()))
    }

    /// Checks a name that came as bytes.
    pub fn from_bytes(name: &[u8]) -> Result<Name> {
        Name::new(std::str::from_utf8(name).map_err(|_| MetaError::InvalidName)?)
    }

    /// The nearest valid name: what is not allowed becomes `_`, what is too long is cut.
    pub(crate) fn nearest(name: &str) -> Name {
        let mut text: String = name.chars().map(|c| if c == '/' || c == '\0' { '_' } else { c }).collect();
        while text.len() > MAX_NAME {
            text.pop();
        }
        if text.is_empty() || text == "." || text == ".." {
            text.push('_');
        }
        Name(text.into())
    }

    /// Sorts before every name; no file has it.
    pub(super) fn before_all() -> Name {
        Name("".into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for Name {
    type Error = MetaError;
    fn try_from(name: &str) -> Result<Name> {
        Name::new(name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The components of a path from the root: `.` and repeated slashes are skipped, `..` goes back one, never above the
/// root. Empty for the root itself. A leading slash changes nothing.
pub fn components(path: &str) -> Result<Vec<&str>> {
    if path.len() > MAX_PATH {
        return Err(MetaError::NameTooLong);
    }
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ if part.len() > MAX_NAME => return Err(MetaError::NameTooLong),
            _ if part.contains('\0') => return Err(MetaError::InvalidName),
            _ if parts.len() == MAX_DEPTH => {
                return Err(MetaError::Invalid("the path has more than 64 directories; use a shorter one"));
            }
            _ => parts.push(part),
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!(Name::new("a").is_ok());
        assert!(Name::new(&"x".repeat(255)).is_ok());
        assert_eq!(Name::new(&"x".repeat(256)), Err(MetaError::NameTooLong));
        for bad in ["", ".", "..", "a/b", "a\0"] {
            assert_eq!(Name::new(bad), Err(MetaError::InvalidName), "{bad:?}");
        }
        assert!(Name::new("...").is_ok());
        assert_eq!(Name::from_bytes(&[0xff, 0xfe]), Err(MetaError::InvalidName));
    }

    #[test]
    fn the_nearest_name_is_valid() {
        for odd in ["", ".", "..", "a/b\0c", &"é".repeat(300), "fine"] {
            let name = Name::nearest(odd);
            assert_eq!(Name::new(&name), Ok(name.clone()), "{odd:?}");
        }
        assert_eq!(Name::nearest("fine").as_str(), "fine");
    }

    #[test]
    fn paths_are_taken_apart() {
        let table: &[(&str, &[&str])] = &[
            ("", &[]),
            ("/", &[]),
            ("/..", &[]),
            ("a", &["a"]),
            ("//a///b/./c/", &["a", "b", "c"]),
            ("/a/../../b", &["b"]),
            ("a/..", &[]),
        ];
        for (path, want) in table {
            assert_eq!(components(path).as_deref(), Ok(*want), "{path:?}");
        }
        assert!(components(&"a/".repeat(64)).is_ok());
        assert!(matches!(components(&"a/".repeat(65)), Err(MetaError::Invalid(_))));
        assert!(components(&"a/../".repeat(100)).is_ok());
        assert_eq!(components(&"/".repeat(4097)), Err(MetaError::NameTooLong));
        assert_eq!(components(&"x".repeat(256)), Err(MetaError::NameTooLong));
        assert_eq!(components("a\0"), Err(MetaError::InvalidName));
    }
}
