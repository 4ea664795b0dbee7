//! Decoder. Each type is compiled with the branch that it expects, and no other. Any bytes are safe to decode.

use super::{DEPTH_MAX, Error};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// Decodes a value from the beginning of `bytes`.
///
/// # Errors
/// The bytes are not of this type.
pub(in crate::raft) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    T::deserialize(&mut Decoder { rest: bytes, depth: 0 })
}

struct Decoder<'de> {
    rest: &'de [u8],
    depth: u16,
}

/// A value without the content of a list or map.
#[derive(Clone, Copy)]
enum Token<'de> {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'de str),
    Bytes(&'de [u8]),
    List(usize),
    Map(usize),
    Extension,
    Reserved,
}

impl Token<'_> {
    fn instead_of(self, expected: &'static str) -> Error {
        let found = match self {
            Self::Nil => "nil",
            Self::Bool(_) => "a boolean",
            Self::Unsigned(_) | Self::Signed(_) => "a number",
            Self::Float(_) => "a floating-point number",
            Self::Text(_) => "text",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
            Self::Extension => "an extension",
            Self::Reserved => "a byte that no value begins with",
        };
        Error::Type { expected, found }
    }
}

impl<'de> Decoder<'de> {
    fn take(&mut self, length: usize) -> Result<&'de [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Error::End)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Error::End)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Reads a number of 1, 2, 4 or 8 bytes.
    fn number(&mut self, bytes: usize) -> Result<u64, Error> {
        Ok(match bytes {
            1 => u8::from_be_bytes(self.array()?).into(),
            2 => u16::from_be_bytes(self.array()?).into(),
            4 => u32::from_be_bytes(self.array()?).into(),
            _ => u64::from_be_bytes(self.array()?),
        })
    }

    fn length(&mut self, bytes: usize) -> Result<usize, Error> {
        usize::try_from(self.number(bytes)?).map_err(|_| Error::Length)
    }

    fn text(&mut self, length: usize) -> Result<Token<'de>, Error> {
        std::str::from_utf8(self.take(length)?).map(Token::Text).map_err(|_| Error::Text)
    }

    fn next(&mut self) -> Result<Token<'de>, Error> {
        let [first] = self.array()?;
        let short = |mask: u8| usize::from(first & mask);
        Ok(match first {
            0x00..=0x7f => Token::Unsigned(first.into()),
            0x80..=0x8f => Token::Map(short(0x0f)),
            0x90..=0x9f => Token::List(short(0x0f)),
            0xa0..=0xbf => self.text(short(0x1f))?,
            0xc0 => Token::Nil,
            0xc1 => Token::Reserved,
            0xc2 => Token::Bool(false),
            0xc3 => Token::Bool(true),
            0xc4..=0xc6 => {
                let length = self.length(1 << (first - 0xc4))?;
                Token::Bytes(self.take(length)?)
            }
            0xc7..=0xc9 => {
                let length = self.length(1 << (first - 0xc7))?;
                self.take(1)?;
                self.take(length)?;
                Token::Extension
            }
            0xca => Token::Float(f32::from_be_bytes(self.array()?).into()),
            0xcb => Token::Float(f64::from_be_bytes(self.array()?)),
            0xcc..=0xcf => Token::Unsigned(self.number(1 << (first - 0xcc))?),
            0xd0 => Token::Signed(i8::from_be_bytes(self.array()?).into()),
            0xd1 => Token::Signed(i16::from_be_bytes(self.array()?).into()),
            0xd2 => Token::Signed(i32::from_be_bytes(self.array()?).into()),
            0xd3 => Token::Signed(i64::from_be_bytes(self.array()?)),
            0xd4..=0xd8 => {
                self.take(1 + (1 << (first - 0xd4)))?;
                Token::Extension
            }
            0xd9..=0xdb => {
                let length = self.length(1 << (first - 0xd9))?;
                self.text(length)?
            }
            0xdc | 0xdd => Token::List(self.length(2 << (first - 0xdc))?),
            0xde | 0xdf => Token::Map(self.length(2 << (first - 0xde))?),
            0xe0..=0xff => Token::Signed(i8::from_be_bytes([first]).into()),
        })
    }

    fn unsigned(&mut self) -> Result<u64, Error> {
        match self.next()? {
            Token::Unsigned(value) => Ok(value),
            other => Err(other.instead_of("a number from zero")),
        }
    }

    fn signed(&mut self) -> Result<i64, Error> {
        match self.next()? {
            Token::Signed(value) => Ok(value),
            token @ Token::Unsigned(value) => i64::try_from(value).map_err(|_| token.instead_of("a signed number")),
            other => Err(other.instead_of("a number")),
        }
    }

    fn float(&mut self) -> Result<f64, Error> {
        match self.next()? {
            Token::Float(value) => Ok(value),
            other => Err(other.instead_of("a floating-point number")),
        }
    }

    fn string(&mut self) -> Result<&'de str, Error> {
        match self.next()? {
            Token::Text(text) => Ok(text),
            other => Err(other.instead_of("text")),
        }
    }

    fn bytes(&mut self) -> Result<&'de [u8], Error> {
        match self.next()? {
            Token::Bytes(bytes) => Ok(bytes),
            other => Err(other.instead_of("bytes")),
        }
    }

    fn nil(&mut self) -> Result<(), Error> {
        match self.next()? {
            Token::Nil | Token::List(0) => Ok(()),
            other => Err(other.instead_of("nil")),
        }
    }

    /// Begins a list, and returns how many items it has.
    fn list(&mut self) -> Result<usize, Error> {
        match self.next()? {
            Token::List(items) => self.enter().map(|()| items),
            other => Err(other.instead_of("a list")),
        }
    }

    /// Begins a map, and returns how many entries it has.
    fn map(&mut self) -> Result<usize, Error> {
        match self.next()? {
            Token::Map(entries) => self.enter().map(|()| entries),
            other => Err(other.instead_of("a map")),
        }
    }

    fn enter(&mut self) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(Error::Depth) } else { Ok(()) }
    }

    fn leave(&mut self, left: usize) -> Result<(), Error> {
        self.depth -= 1;
        if left > 0 { Err(Error::Left(left)) } else { Ok(()) }
    }

    /// Skips one value with its content.
    fn skip(&mut self) -> Result<(), Error> {
        let inner = match self.next()? {
            Token::List(items) => items,
            Token::Map(entries) => entries.checked_mul(2).ok_or(Error::Length)?,
            _ => return Ok(()),
        };
        self.enter()?;
        for _ in 0..inner {
            self.skip()?;
        }
        self.leave(0)
    }

    fn visit_items<V: Visitor<'de>>(&mut self, left: usize, visitor: V) -> Result<V::Value, Error> {
        let mut items = Items { decoder: self, left };
        let value = visitor.visit_seq(&mut items)?;
        let left = items.left;
        self.leave(left)?;
        Ok(value)
    }

    fn visit_entries<V: Visitor<'de>>(&mut self, left: usize, visitor: V) -> Result<V::Value, Error> {
        let mut items = Items { decoder: self, left };
        let value = visitor.visit_map(&mut items)?;
        let left = items.left;
        self.leave(left)?;
        Ok(value)
    }
}

impl<'de> Deserializer<'de> for &mut Decoder<'de> {
    type Error = Error;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.next()? {
            Token::Nil => visitor.visit_unit(),
            Token::Bool(value) => visitor.visit_bool(value),
            Token::Unsigned(value) => visitor.visit_u64(value),
            Token::Signed(value) => visitor.visit_i64(value),
            Token::Float(value) => visitor.visit_f64(value),
            Token::Text(text) => visitor.visit_borrowed_str(text),
            Token::Bytes(bytes) => visitor.visit_borrowed_bytes(bytes),
            Token::List(items) => {
                self.enter()?;
                self.visit_items(items, visitor)
            }
            Token::Map(entries) => {
                self.enter()?;
                self.visit_entries(entries, visitor)
            }
            other @ (Token::Extension | Token::Reserved) => Err(other.instead_of("a value")),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.next()? {
            Token::Bool(value) => visitor.visit_bool(value),
            other => Err(other.instead_of("a boolean")),
        }
    }

    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(self.signed()?)
    }

    fn deserialize_i16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(self.signed()?)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(self.signed()?)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(self.signed()?)
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u64(self.unsigned()?)
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u64(self.unsigned()?)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u64(self.unsigned()?)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u64(self.unsigned()?)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f64(self.float()?)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f64(self.float()?)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(self.string()?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(self.string()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(self.string()?)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_bytes(self.bytes()?)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_bytes(self.bytes()?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.rest.first() == Some(&0xc0) {
            self.take(1)?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.nil()?;
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let items = self.list()?;
        self.visit_items(items, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let entries = self.map()?;
        self.visit_entries(entries, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if matches!(self.rest.first(), Some(0xa0..=0xbf | 0xd9..=0xdb)) {
            return visitor.visit_enum(Variant { decoder: self, is_unit: true });
        }
        match self.map()? {
            1 => {
                let value = visitor.visit_enum(Variant { decoder: self, is_unit: false })?;
                self.leave(0)?;
                Ok(value)
            }
            _ => Err(Error::Type { expected: "a variant", found: "a map without one" }),
        }
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(self.string()?)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.skip()?;
        visitor.visit_unit()
    }
}

/// Items of a list, or entries of a map.
struct Items<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    left: usize,
}

impl Items<'_, '_> {
    /// Returns true if there is another item, which is read next.
    fn advance(&mut self) -> bool {
        let more = self.left > 0;
        self.left = self.left.saturating_sub(1);
        more
    }

    /// Number of announced items, at most the remaining bytes: each item takes at least one.
    fn hint(&self) -> usize {
        self.left.min(self.decoder.rest.len())
    }
}

impl<'de> SeqAccess<'de> for Items<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if self.advance() { seed.deserialize(&mut *self.decoder).map(Some) } else { Ok(None) }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.hint())
    }
}

impl<'de> MapAccess<'de> for Items<'_, 'de> {
    type Error = Error;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if self.advance() { seed.deserialize(&mut *self.decoder).map(Some) } else { Ok(None) }
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(&mut *self.decoder)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.hint())
    }
}

/// Name of a variant, and its content.
struct Variant<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    is_unit: bool,
}

impl Variant<'_, '_> {
    fn check_holds(&self) -> Result<(), Error> {
        match self.is_unit {
            true => Err(Error::Type { expected: "a variant that holds something", found: "its name alone" }),
            false => Ok(()),
        }
    }
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Error> {
        let name = seed.deserialize(&mut *self.decoder)?;
        Ok((name, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        if self.is_unit { Ok(()) } else { self.decoder.nil() }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        self.check_holds()?;
        seed.deserialize(self.decoder)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.check_holds()?;
        self.decoder.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        self.check_holds()?;
        self.decoder.deserialize_map(visitor)
    }
}
