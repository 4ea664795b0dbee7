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
