//! Random messages from the protobuf descriptors: well-formed on the wire, with arbitrary fields.

use archon_proto::DESCRIPTORS;
use archon_testkit::Random;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Deeper messages are left empty.
const DEPTH_MAX: usize = 6;

static MESSAGES: LazyLock<BTreeMap<String, DescriptorProto>> = LazyLock::new(|| {
    let mut messages = BTreeMap::new();
    for file in files().file {
        let package = format!(".{}", file.package());
        for message in &file.message_type {
            collect(&package, message, &mut messages);
        }
    }
    messages
});

fn files() -> FileDescriptorSet {
    // The program's own constant, not input.
    FileDescriptorSet::decode(DESCRIPTORS).unwrap_or_default()
}

fn collect(prefix: &str, message: &DescriptorProto, into: &mut BTreeMap<String, DescriptorProto>) {
    let name = format!("{prefix}.{}", message.name());
    for nested in &message.nested_type {
        collect(&name, nested, into);
    }
    into.insert(name, message.clone());
}

/// One remote procedure.
#[derive(Clone, Debug)]
pub struct Method {
    /// Its path, `/archon.v1.Kv/Get`.
    pub path: String,
    /// Name of its request message, without the package.
    pub request: String,
    /// Name of its answer message, without the package.
    pub response: String,
}

/// Returns every remote procedure of every service.
pub fn methods() -> Vec<Method> {
    let mut methods = Vec::new();
    for file in files().file {
        for service in &file.service {
            for method in &service.method {
                methods.push(Method {
                    path: format!("/{}.{}/{}", file.package(), service.name(), method.name()),
                    request: short(method.input_type()),
                    response: short(method.output_type()),
                });
            }
        }
    }
    methods
}

fn short(name: &str) -> String {
    name.trim_start_matches(".archon.v1.").to_owned()
}

/// Returns a random encoded message of the type `name` (without the package).
///
/// # Panics
/// If no message has that name.
pub fn generate(name: &str, random: &mut Random) -> Vec<u8> {
    let full = format!(".archon.v1.{name}");
    assert!(MESSAGES.contains_key(&full), "no message is called {name}");
    message(&full, random, 0)
}

fn message(name: &str, random: &mut Random, depth: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let Some(descriptor) = MESSAGES.get(name) else { return out };
    if depth > DEPTH_MAX {
        return out;
    }
    // Of a oneof usually one branch is written, at times two or none; other fields are mostly present.
    let branches = descriptor.field.iter().filter(|field| field.oneof_index.is_some()).count();
    let chosen = random.index(branches.max(1));
    let mut branch = 0;
    for described in &descriptor.field {
        let present = if described.oneof_index.is_some() {
            branch += 1;
            branch - 1 == chosen && !random.once_in(20) || random.once_in(40)
        } else {
            !random.once_in(8)
        };
        if !present {
            continue;
        }
        let count = if described.label() == Label::Repeated { random.index(4) } else { 1 };
        for _ in 0..count {
            field(described, random, depth, &mut out);
        }
    }
    out
}

fn field(described: &FieldDescriptorProto, random: &mut Random, depth: usize, out: &mut Vec<u8>) {
    let number = u64::try_from(described.number()).unwrap_or_default() << 3;
    match described.r#type() {
        Type::Message => {
            let inner = message(described.type_name(), random, depth + 1);
            delimited(number, &inner, out);
        }
        Type::String => delimited(number, text(described.name(), random).as_bytes(), out),
        Type::Bytes => delimited(number, &bytes(random), out),
        Type::Fixed64 | Type::Sfixed64 | Type::Double => {
            varint(number | 1, out);
            out.extend_from_slice(&integer(random).to_le_bytes());
        }
        Type::Fixed32 | Type::Sfixed32 | Type::Float => {
            varint(number | 5, out);
            out.extend_from_slice(&(integer(random) as u32).to_le_bytes());
        }
        Type::Bool => {
            varint(number, out);
            varint(u64::from(random.once_in(2)), out);
        }
        Type::Enum => {
            varint(number, out);
            varint(random.index(6) as u64, out);
        }
        _ => {
            varint(number, out);
            varint(integer(random), out);
        }
    }
}

fn integer(random: &mut Random) -> u64 {
    match random.index(8) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => u64::from(u32::MAX),
        4 => 1 << random.index(64),
        5 => random.number(),
        _ => random.index(20) as u64,
    }
}

fn text(field: &str, random: &mut Random) -> String {
    let usual: &[&str] = match field {
        name if name.contains("address") || name == "redis" => &["127.0.0.1:7000", "[::1]:80", "host.example:65535"],
        _ => &["athens", "byzantium", "default", "cyrene"],
    };
    match random.index(10) {
        0 => String::new(),
        1 => "x".repeat(random.index(400)),
        2 => String::from_utf8_lossy(&random.bytes(12)).into_owned(),
        3 => "a b\n\u{0}ü:".to_owned(),
        _ => (*random.pick(usual)).to_owned(),
    }
}

fn bytes(random: &mut Random) -> Vec<u8> {
    let count = match random.index(6) {
        0 => 0,
        1 => random.index(40),
        2 => 4_097,
        // Ids have sixteen bytes, and most fields of bytes are ids or keys.
        _ => 16,
    };
    random.bytes(count)
}

fn delimited(number: u64, inner: &[u8], out: &mut Vec<u8>) {
    varint(number | 2, out);
    varint(inner.len() as u64, out);
    out.extend_from_slice(inner);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_proto::v1;

    #[test]
    fn generated_messages_are_protobuf() {
        let mut random = Random::new(1);
        let mut with_key = 0;
        for _ in 0..2_000 {
            let bytes = generate("Op", &mut random);
            let op = v1::Op::decode(bytes.as_slice()).expect("well-formed");
            with_key += usize::from(matches!(op.op, Some(v1::op::Op::Put(_))));
        }
        assert!(with_key > 100, "puts are among them: {with_key}");
    }

    #[test]
    fn every_method_has_known_messages() {
        let methods = methods();
        assert!(methods.len() > 20, "{methods:?}");
        for method in methods {
            generate(&method.request, &mut Random::new(1));
            generate(&method.response, &mut Random::new(1));
        }
    }
}
