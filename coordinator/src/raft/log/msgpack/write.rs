//! Encoder. All of it but the fronts of lists and structs is compiled once.

use super::Error;
use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple, SerializeTupleStruct,
    SerializeTupleVariant, Serializer,
};
use std::io::Write;

/// Writes an encoded value.
///
/// # Errors
/// The value cannot be represented, or the writer fails.
pub(in crate::raft) fn encode<T: Serialize>(value: &T, to: &mut dyn Write) -> Result<(), Error> {
    value.serialize(&mut Encoder { to })
}

pub(super) struct Encoder<'a> {
    to: &'a mut dyn Write,
}

/// First bytes of the three sizes of lengths; those below `short_max` are part of the byte `short`.
struct Family {
    short: u8,
    short_max: u32,
    byte: Option<u8>,
    two: u8,
    four: u8,
}

const TEXT: Family = Family { short: 0xa0, short_max: 32, byte: Some(0xd9), two: 0xda, four: 0xdb };
const BYTES: Family = Family { short: 0, short_max: 0, byte: Some(0xc4), two: 0xc5, four: 0xc6 };
const LIST: Family = Family { short: 0x90, short_max: 16, byte: None, two: 0xdc, four: 0xdd };
const MAP: Family = Family { short: 0x80, short_max: 16, byte: None, two: 0xde, four: 0xdf };

impl Encoder<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        Ok(self.to.write_all(bytes)?)
    }

    /// Writes a first byte and a number in the bytes that follow.
    fn number<const N: usize>(&mut self, first: u8, number: [u8; N]) -> Result<(), Error> {
        let mut bytes = [first; 9];
        bytes[1..=N].copy_from_slice(&number);
        self.write(&bytes[..=N])
    }

    fn length(&mut self, family: &Family, length: usize) -> Result<(), Error> {
        let length = u32::try_from(length).map_err(|_| Error::Length)?;
        match (u8::try_from(length), u16::try_from(length), family.byte) {
            (Ok(length), _, _) if u32::from(length) < family.short_max => self.write(&[family.short | length]),
            (Ok(length), _, Some(first)) => self.write(&[first, length]),
            (_, Ok(length), _) => self.number(family.two, length.to_be_bytes()),
            _ => self.number(family.four, length.to_be_bytes()),
        }
    }

    fn text(&mut self, text: &str) -> Result<(), Error> {
        self.length(&TEXT, text.len())?;
        self.write(text.as_bytes())
    }

    fn unsigned(&mut self, value: u64) -> Result<(), Error> {
        if let Ok(value) = u8::try_from(value) {
            return if value < 0x80 { self.write(&[value]) } else { self.write(&[0xcc, value]) };
        }
        if let Ok(value) = u16::try_from(value) {
            return self.number(0xcd, value.to_be_bytes());
        }
        match u32::try_from(value) {
            Ok(value) => self.number(0xce, value.to_be_bytes()),
            Err(_) => self.number(0xcf, value.to_be_bytes()),
        }
    }

    fn signed(&mut self, value: i64) -> Result<(), Error> {
        if let Ok(value) = u64::try_from(value) {
            return self.unsigned(value);
        }
        if let Ok(value) = i8::try_from(value) {
            let [byte] = value.to_be_bytes();
            return if value >= -32 { self.write(&[byte]) } else { self.write(&[0xd0, byte]) };
        }
        if let Ok(value) = i16::try_from(value) {
            return self.number(0xd1, value.to_be_bytes());
        }
        match i32::try_from(value) {
            Ok(value) => self.number(0xd2, value.to_be_bytes()),
            Err(_) => self.number(0xd3, value.to_be_bytes()),
        }
    }

    /// Writes the name of a variant with content.
    fn variant(&mut self, name: &str) -> Result<(), Error> {
        self.length(&MAP, 1)?;
        self.text(name)
    }
}

impl Serializer for &mut Encoder<'_> {
    type Error = Error;
    type Ok = ();
    type SerializeMap = Self;
    type SerializeSeq = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn serialize_bool(self, value: bool) -> Result<(), Error> {
        self.write(&[if value { 0xc3 } else { 0xc2 }])
    }

    fn serialize_i8(self, value: i8) -> Result<(), Error> {
        self.signed(value.into())
    }

    fn serialize_i16(self, value: i16) -> Result<(), Error> {
        self.signed(value.into())
    }

    fn serialize_i32(self, value: i32) -> Result<(), Error> {
        self.signed(value.into())
    }

    fn serialize_i64(self, value: i64) -> Result<(), Error> {
        self.signed(value)
    }

    fn serialize_u8(self, value: u8) -> Result<(), Error> {
        self.unsigned(value.into())
    }

    fn serialize_u16(self, value: u16) -> Result<(), Error> {
        self.unsigned(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result<(), Error> {
        self.unsigned(value.into())
    }

    fn serialize_u64(self, value: u64) -> Result<(), Error> {
        self.unsigned(value)
    }

    fn serialize_f32(self, value: f32) -> Result<(), Error> {
        self.number(0xca, value.to_be_bytes())
    }

    fn serialize_f64(self, value: f64) -> Result<(), Error> {
        self.number(0xcb, value.to_be_bytes())
    }

    fn serialize_char(self, value: char) -> Result<(), Error> {
        self.text(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), Error> {
        self.text(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Error> {
        self.length(&BYTES, value.len())?;
        self.write(value)
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.write(&[0xc0])
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        self.length(&LIST, 0)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), Error> {
        self.text(variant)
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(self, _: &'static str, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.variant(variant)?;
        value.serialize(self)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Self, Error> {
        self.length(&LIST, length.ok_or(Error::Length)?)?;
        Ok(self)
    }

    fn serialize_tuple(self, length: usize) -> Result<Self, Error> {
        self.length(&LIST, length)?;
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, length: usize) -> Result<Self, Error> {
        self.length(&LIST, length)?;
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self, Error> {
        self.variant(variant)?;
        self.length(&LIST, length)?;
        Ok(self)
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Self, Error> {
        self.length(&MAP, length.ok_or(Error::Length)?)?;
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, length: usize) -> Result<Self, Error> {
        self.length(&MAP, length)?;
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self, Error> {
        self.variant(variant)?;
        self.length(&MAP, length)?;
        Ok(self)
    }
}

impl SerializeSeq for &mut Encoder<'_> {
    type Error = Error;
    type Ok = ();

    fn serialize_element<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

impl SerializeTuple for &mut Encoder<'_> {
    type Error = Error;
    type Ok = ();

    fn serialize_element<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

impl SerializeTupleStruct for &mut Encoder<'_> {
    type Error = Error;
    type Ok = ();

    fn serialize_field<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

impl SerializeTupleVariant for &mut Encoder<'_> {
    type Error = Error;
    type Ok = ();

    fn serialize_field<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

impl SerializeMap for &mut Encoder<'_> {
    type Error = Error;
    type Ok = ();

    fn serialize_key<T: ?Sized + Serialize>(&mut self, key: &T) -> Result<(), Error> {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

impl SerializeStruct for &mut Encoder<'_> {
    type Error = Error;
    type Ok = ();

    fn serialize_field<T: ?Sized + Serialize>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        self.text(name)?;
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

impl SerializeStructVariant for &mut Encoder<'_> {
    type Error = Error;
    type Ok = ();

    fn serialize_field<T: ?Sized + Serialize>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        self.text(name)?;
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}
