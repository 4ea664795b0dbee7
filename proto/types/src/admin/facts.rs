//! Tables of codes with their severities and typed facts: of findings and of events.

use serde_json::{Map, Value};

/// Declares a vocabulary of codes and the facts of each code. A row has the code, its severity, and its facts; the comment
/// of a fact begins with its name.
macro_rules! facts {
    (
        $(#[doc = $code_doc:literal])+
        pub enum $code_name:ident: $what:literal;

        $(#[doc = $facts_doc:literal])+
        pub enum $facts_name:ident;

        $(
            $(#[doc = $doc:literal])+
            $code:ident = $word:literal, $severity:ident {
                $($(#[doc = $fact_doc:literal])+ $fact:ident: $kind:ty,)*
            }
        )+
    ) => {
        $crate::admin::open_enum::words! {
            $(#[doc = $code_doc])+
            #[non_exhaustive]
            pub enum $code_name: $what {
                $($(#[doc = $doc])+ $($(#[doc = $fact_doc])+)* $code = $word,)+
            }
        }

        $(#[doc = $facts_doc])+
        #[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
        #[serde(tag = "code", content = "facts", rename_all = "snake_case")]
        pub enum $facts_name {
            $($(#[doc = $doc])+ $code { $($(#[doc = $fact_doc])+ $fact: $kind,)* },)+
        }

        impl $facts_name {
            /// Returns the code.
            pub const fn code(&self) -> $code_name {
                match self { $(Self::$code { .. } => $code_name::$code,)+ }
            }

            /// Returns the facts as a JSON object, without the code.
            pub fn to_object(&self) -> serde_json::Map<String, serde_json::Value> {
                $crate::admin::facts::object(serde_json::to_value(self))
            }
        }

        impl $code_name {
            /// Returns the severity, unless the state of the cluster makes the condition intended.
            pub const fn severity(self) -> $crate::admin::finding::Severity {
                match self { $(Self::$code => $crate::admin::finding::Severity::$severity,)+ }
            }
        }
    };
}
pub(crate) use facts;

/// Returns the facts of a serialized code with facts. Facts have text keys, so serialization does not fail.
pub(crate) fn object(tagged: serde_json::Result<Value>) -> Map<String, Value> {
    match tagged {
        Ok(Value::Object(mut tagged)) => match tagged.remove("facts") {
            Some(Value::Object(facts)) => facts,
            _ => Map::new(),
        },
        _ => Map::new(),
    }
}
