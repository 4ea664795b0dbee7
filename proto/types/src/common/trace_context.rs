//! Trace and span of a call, as in the W3C header `traceparent`.

use std::fmt;

/// The header, in HTTP and in the metadata of gRPC.
pub const TRACEPARENT: &str = "traceparent";

/// Length of the header in version 00: `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits.
const LENGTH: usize = 55;
/// The only known flag: the caller keeps the trace.
const SAMPLED: u8 = 0x01;

/// Trace and span of a call. Neither number is zero.
///
/// Headers are untrusted input, so a malformed header yields no context, and never an error:
///
/// ```
/// use archon_types::TraceContext;
///
/// let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let context = TraceContext::parse(header).expect("a header");
/// assert_eq!(context.to_string(), header);
/// assert_eq!(TraceContext::parse(&header.to_uppercase()), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TraceContext {
    trace: u128,
    span: u64,
    sampled: bool,
}

impl TraceContext {
    /// Creates the context of span `span` in trace `trace`; `sampled` if the originator keeps the trace. `None` if a
    /// number is zero.
    pub const fn new(trace: u128, span: u64, sampled: bool) -> Option<Self> {
        if trace == 0 || span == 0 { None } else { Some(Self { trace, span, sampled }) }
    }

    /// Parses a header: version 00 of exactly its length, or a later one with the same beginning. Flags other than the
    /// first are unknown and not passed on.
    pub fn parse(header: &str) -> Option<Self> {
        let bytes = header.as_bytes();
        let (known, rest) = bytes.split_at_checked(LENGTH)?;
        let version = u8::try_from(number(&known[..2])?).ok()?;
        // 255 is no version. A later one may have more data, after another dash.
        let rest_fits = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest[0] == b'-',
        };
        let dashes = [2, 35, 52].iter().all(|at| known[*at] == b'-');
        if !rest_fits || !dashes {
            return None;
        }
        let span = u64::try_from(number(&known[36..52])?).ok()?;
        let flags = u8::try_from(number(&known[53..])?).ok()?;
        Self::new(number(&known[3..35])?, span, flags & SAMPLED != 0)
    }

    /// Returns the trace.
    pub const fn trace(self) -> u128 {
        self.trace
    }

    /// Returns the span: the parent of each called operation.
    pub const fn span(self) -> u64 {
        self.span
    }

    /// Returns true if the originator keeps the trace.
    pub const fn is_sampled(self) -> bool {
        self.sampled
    }

    /// Returns another span of the same trace; the same one if `span` is zero.
    #[must_use]
    pub const fn at(self, span: u64) -> Self {
        if span == 0 { self } else { Self { span, ..self } }
    }
}

/// Formats the header, in version 00.
impl fmt::Display for TraceContext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

/// Parses lower-case hexadecimal digits, 32 at most. Unlike the standard library, accepts no sign and no upper case.
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0_u128, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn header_is_parsed_as_in_the_recommendation() {
        let context = TraceContext::parse(HEADER).unwrap();
        assert_eq!(context.trace(), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!((context.span(), context.is_sampled()), (0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(context.at(7).to_string(), "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000007-01");
        assert_eq!(context.at(0), context);
    }

    #[test]
    fn malformed_header_is_no_context() {
        let zero_trace = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
        let zero_span = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", "0".repeat(16));
        let upper = HEADER.replace('b', "B");
        let longer = format!("{HEADER}-");
        let signed = HEADER.replacen("4bf9", "+bf9", 1);
        let later = ["cc", HEADER.strip_prefix("00").unwrap(), "x"].concat();
        let (forbidden, version) = (HEADER.replacen("00", "ff", 1), HEADER.replacen("00", "0g", 1));
        let dashes = HEADER.replace('-', "_");
        let wide = HEADER.replacen("4bf9", "4b\u{e9}", 1);
        for wrong in [
            "",
            "00",
            &HEADER[..54],
            &zero_trace,
            &zero_span,
            &upper,
            &longer,
            &signed,
            &later,
            &forbidden,
            &version,
            &dashes,
            &wide,
        ] {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn later_version_is_parsed_and_passed_on_as_version_00() {
        let tail = HEADER.strip_prefix("00").unwrap();
        for later in [format!("01{tail}"), format!("fe{tail}-what-the-future-holds")] {
            assert_eq!(TraceContext::parse(&later).unwrap().to_string(), HEADER);
        }
        let flags = TraceContext::parse(&HEADER.replace("-01", "-ff")).unwrap();
        assert_eq!(flags.to_string(), HEADER, "flags that are not known are not passed on");
        assert!(!TraceContext::parse(&HEADER.replace("-01", "-fe")).unwrap().is_sampled());
    }

    proptest! {
        #[test]
        fn formatted_context_parses_to_itself(trace in 1_u128.., span in 1_u64.., sampled: bool) {
            let context = TraceContext::new(trace, span, sampled).unwrap();
            prop_assert_eq!(TraceContext::parse(&context.to_string()), Some(context));
        }

        #[test]
        fn parsed_header_is_formatted_in_the_same_grammar(text in "([0-9a-fA-F]{2}-[0-9a-f]{30,34}-[0-9a-f]{16}-[0-9a-f]{2}.{0,3})|.{0,80}") {
            if let Some(context) = TraceContext::parse(&text) {
                let said = context.to_string();
                prop_assert_eq!(said.len(), LENGTH);
                prop_assert_eq!(TraceContext::parse(&said), Some(context));
                prop_assert_eq!(&said[3..52], &text[3..52], "the numbers are those that were read");
            }
        }
    }
}
