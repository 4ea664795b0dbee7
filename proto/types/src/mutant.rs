//! Protocol rules that a test can disable in the real code, one at a time, to prove that its checks can fail. Only
//! builds with the feature `mutants` of the crate in question can do so; in all others the check for a disabled rule is
//! the constant `false`.

/// Declares a crate's `Mutant`: each variant disables one rule, whose number in `docs/design/protocol.md` follows it.
///
/// ```
/// archon_types::mutants! {
///     /// Water runs uphill.
///     Uphill = 3,
/// }
/// assert_eq!((Mutant::ALL, Mutant::Uphill.rule()), (&[Mutant::Uphill][..], 3));
/// ```
#[macro_export]
macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident = $rule:literal,)+) => {
        /// One disabled rule of the protocol, to prove that a test detects it.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[cfg_attr(not(any(test, feature = "mutants")), allow(dead_code, unreachable_pub))]
        pub enum Mutant { $($(#[$doc])* $name,)+ }

        #[cfg_attr(not(any(test, feature = "mutants")), allow(dead_code, unreachable_pub))]
        impl Mutant {
            /// All mutants.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the number of the disabled rule.
            pub const fn rule(self) -> u8 {
                match self { $(Self::$name => $rule,)+ }
            }
        }
    };
}

/// Declares a crate's `DisabledRule`, which holds the active `Mutant`. `Mutant` must be in scope.
#[macro_export]
macro_rules! broken {
    () => {
        /// The disabled rule. A product build has none and checks nothing.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct DisabledRule {
            #[cfg(any(test, feature = "mutants"))]
            mutant: Option<Mutant>,
        }

        impl DisabledRule {
            /// Disables the rule of a mutant.
            #[cfg(any(test, feature = "mutants"))]
            pub const fn by(mutant: Option<Mutant>) -> Self {
                Self { mutant }
            }

            #[cfg(any(test, feature = "mutants"))]
            pub(crate) fn breaks(self, mutant: Mutant) -> bool {
                self.mutant == Some(mutant)
            }

            #[cfg(not(any(test, feature = "mutants")))]
            pub(crate) const fn breaks(self, _: Mutant) -> bool {
                false
            }
        }
    };
}

/// Declares the function that detects each mutant. The function returns true if the rule held, with or without the
/// mutant; a test of its name, in the module `taken_away`, fails unless the rule holds without the mutant and is
/// violated with it.
///
/// `Mutant` must be in scope. `SHOWN` lists the mutants.
#[macro_export]
macro_rules! shown_by {
    ($($mutant:ident => $held:ident,)+) => {
        /// Mutants that a test here detects.
        #[allow(dead_code, unreachable_pub)]
        pub(crate) const SHOWN: &[Mutant] = &[$(Mutant::$mutant,)+];

        mod taken_away {
            $(
                #[test]
                fn $held() {
                    $crate::mutant::assert_shows(super::Mutant::$mutant, super::$held);
                }
            )+
        }
    };
}

/// Fails unless the rule holds without the mutant and is violated with it. A panicking invariant counts as a violation.
///
/// # Panics
/// If the mutant is not detected.
pub fn assert_shows<M: Copy + std::fmt::Debug>(mutant: M, held: impl Fn(Option<M>) -> bool) {
    assert!(held(None), "without {mutant:?} the rule does not hold");
    let with_it = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| held(Some(mutant))));
    assert!(!with_it.unwrap_or(false), "{mutant:?} does not show");
}

#[cfg(test)]
mod tests {
    use super::assert_shows;
    use std::panic::catch_unwind;

    #[test]
    fn mutant_is_detected_only_if_the_test_fails_with_it() {
        assert_shows((), |mutant| mutant.is_none());
        assert_shows((), |mutant| mutant.is_none() || panic!("an invariant"));
        assert!(catch_unwind(|| assert_shows((), |_| true)).is_err(), "it does not look");
        assert!(catch_unwind(|| assert_shows((), |_| false)).is_err(), "it fails anyway");
        assert!(catch_unwind(|| assert_shows((), |mutant| mutant.is_some())).is_err(), "the wrong way round");
    }
}
