//! Feeds generated and damaged bytes to every decoder of wire and disk. What must hold: a decoder never panics, refuses
//! with an error that says something, and what it accepts survives being encoded and decoded again.
//!
//! Coverage-guided fuzzers need a nightly compiler. This driver runs on the stable one and is guided by what decoders say:
//! an input that brings out an answer not seen before (numbers aside) is kept and mutated further. Inputs are generated from
//! the protobuf descriptors, or mutated from a committed corpus of real encodings; where bytes are under a checksum, the
//! checksum is put right again most of the time, so that mutations reach what lies behind it.
//!
//! | part | what it does |
//! |---|---|
//! | [`target`] | one decoder, and what must hold of it |
//! | [`targets`] | all of them |
//! | [`random`], [`mutate`], [`protobuf`] | where inputs come from |
//! | [`driver`] | runs a target, keeps what is new, reports what broke |
//! | [`corpus`] | the committed files |

pub mod corpus;
pub mod driver;
pub mod mutate;
pub mod protobuf;
pub mod random;
pub mod target;
pub mod targets;
