//! The description of a rule site, and the macro by which a crate lists its own.

use std::fmt;

/// The number of a site, over all registries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u16);

/// What kind of rule a site states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A patch is on the disk no earlier than another one.
    Dependency,
    /// Deferred work, or a step of the reclaim, waits for a patch.
    Wait,
    /// A change that `fsync`, or the answer of a call, waits for.
    Fsync,
    /// A condition under which something need not wait, is deferred, or is still remembered.
    Condition,
    /// Changes that are made together or not at all.
    Whole,
    /// A flush of a device.
    Flush,
    /// A revocation in a journal, or taking one back.
    Revoke,
    /// A condition under which a journal's tail moves.
    Tail,
    /// A checksum, a sequence number or an age that recovery looks at.
    Check,
}

impl Class {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Class::Dependency => "dependency",
            Class::Wait => "wait",
            Class::Fsync => "fsync",
            Class::Condition => "condition",
            Class::Whole => "whole",
            Class::Flush => "flush",
            Class::Revoke => "revoke",
            Class::Tail => "tail",
            Class::Check => "check",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A place that states a rule.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// Its number.
    pub id: Id,
    /// The crate that it is in.
    pub layer: &'static str,
    /// Its name in the code.
    pub ident: &'static str,
    /// What kind of rule it is.
    pub class: Class,
    /// What the disk, or a caller, may see after a crash without it.
    pub without: &'static str,
}

impl Site {
    /// Its name for people: small letters with hyphens.
    pub fn name(&self) -> String {
        let mut name = String::new();
        for letter in self.ident.chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.extend(letter.to_lowercase());
        }
        name
    }
}

/// Declares a crate's rules: an enum `Rule`, the list `Rule::SITES` in the same order, and the
/// number of each.
///
/// `registry! { "layer", BASE; Class { /// What may be seen without it.\n Name, … } … }`
#[macro_export]
macro_rules! registry {
    (
        $layer:literal, $base:literal;
        $($class:ident { $($(#[doc = $without:literal])+ $rule:ident,)* })*
    ) => {
        /// The rules that this crate states. The text of each says what may be seen after a crash
        /// without it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Rule {
            $($($(#[doc = $without])+ $rule,)*)*
        }

        impl Rule {
            /// What is known of them.
            pub const SITES: &[$crate::Site] = &[$($(
                $crate::Site {
                    id: $crate::Id($base + Rule::$rule as u16),
                    layer: $layer,
                    ident: stringify!($rule),
                    class: $crate::Class::$class,
                    without: concat!($($without),+),
                },
            )*)*];

            /// The number of its site.
            pub const fn id(self) -> $crate::Id {
                $crate::Id($base + self as u16)
            }
        }

        impl From<Rule> for $crate::Id {
            #[inline(always)]
            fn from(rule: Rule) -> $crate::Id {
                rule.id()
            }
        }
    };
}

#[cfg(test)]
mod tests {
    mod rules {
        crate::registry! {
            "test", 1000;
            Dependency {
                /// A name stands for
                /// nothing.
                NameAfterInode,
            }
            Check {
                /// Garbage is replayed.
                ChecksumIsRight,
            }
        }
    }
    use super::Id;
    use rules::Rule;

    #[test]
    fn sites_have_names_numbers_and_texts() {
        let [first, second] = Rule::SITES else {
            panic!("{}", Rule::SITES.len());
        };
        assert_eq!(first.name(), "name-after-inode");
        assert_eq!(first.without.trim(), "A name stands for nothing.");
        assert_eq!((first.id, second.id), (Id(1000), Id(1001)));
        assert_eq!(Id::from(Rule::ChecksumIsRight), second.id);
        assert_eq!(second.class.to_string(), "check");
    }
}
