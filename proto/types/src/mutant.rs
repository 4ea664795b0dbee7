//! Rules of the protocol that a test can take away from the real code, one at a time, to prove that its checks can
//! fail. Only builds with the feature `mutants` of the crate in question can do so; in all others the question whether a
//! rule is taken away is the constant `false`.

/// Declares a crate's `Mutant`: each variant takes away one rule, whose number in `docs/PROTOCOL.md` follows it.
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
        /// One rule of the protocol taken away, to prove that a test misses it.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[cfg_attr(not(any(test, feature = "mutants")), allow(dead_code, unreachable_pub))]
        pub enum Mutant { $($(#[$doc])* $name,)+ }

        #[cfg_attr(not(any(test, feature = "mutants")), allow(dead_code, unreachable_pub))]
        impl Mutant {
            /// All there are.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The number of the rule that is taken away.
            pub const fn rule(self) -> u8 {
                match self { $(Self::$name => $rule,)+ }
            }
        }
    };
}

/// Declares a crate's `Broken`, which says which of its `Mutant` is switched on. `Mutant` must be in scope.
#[macro_export]
macro_rules! broken {
    () => {
        /// The rule that is taken away. In a product build there is none, and nothing is asked.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Broken {
            #[cfg(any(test, feature = "mutants"))]
            mutant: Option<Mutant>,
        }

        impl Broken {
            /// Takes a rule away.
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

/// Declares which function shows each mutant. The function says whether the rule held, with the mutant or without; a test of
/// its name, in the module `taken_away`, fails unless the rule holds without the mutant and does not with it.
///
/// `Mutant` must be in scope. `SHOWN` is the list of the mutants.
#[macro_export]
macro_rules! shown_by {
    ($($mutant:ident => $held:ident,)+) => {
        /// The mutants that a test here shows.
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

/// Fails unless the rule holds without the mutant, and does not with it. An invariant that panics shows it as well.
///
/// # Panics
/// If the mutant does not show.
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
    fn a_test_shows_a_mutant_only_if_it_passes_without_and_fails_with_it() {
        assert_shows((), |mutant| mutant.is_none());
        assert_shows((), |mutant| mutant.is_none() || panic!("an invariant"));
        assert!(catch_unwind(|| assert_shows((), |_| true)).is_err(), "it does not look");
        assert!(catch_unwind(|| assert_shows((), |_| false)).is_err(), "it fails anyway");
        assert!(catch_unwind(|| assert_shows((), |mutant| mutant.is_some())).is_err(), "the wrong way round");
    }
}
