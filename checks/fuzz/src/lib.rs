//! Feeds generated and damaged bytes to every decoder of wire and disk. Required: a decoder never panics, refuses with
//! a meaningful error, and its accepted inputs survive encoding and decoding again.
//!
//! Coverage-guided fuzzers need a nightly compiler. This driver runs on the stable one and is guided by the decoders'
//! answers: an input with a new answer (numbers aside) is kept and mutated further. Inputs are generated from the
//! protobuf descriptors, or mutated from a committed corpus of real encodings; checksums are usually fixed after a
//! mutation, so that mutations reach the data behind them.
//!
//! | part | task |
//! |---|---|
//! | [`target`] | one decoder, and its required properties |
//! | [`targets`] | all of them |
//! | [`mutate`], [`protobuf`] | sources of inputs |
//! | [`driver`] | runs a target, keeps new inputs, reports findings |
//! | [`corpus`] | the committed files |

pub mod corpus;
pub mod driver;
pub mod mutate;
pub mod protobuf;
pub mod target;
pub mod targets;
