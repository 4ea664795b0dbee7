//! Scripts that are carried out without an interpreter: those of locks, recognised by their text.

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 20;
/// Longest text that is compared with those of known scripts. Longer ones have other contents.
const TEXT_BYTES_MAX: usize = 4 * 1024;

/// A script with a meaning that is known here. It has one key, and its first argument is the token of a lock. None does
/// anything unless the value of the key is that token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Script {
    /// Deletes the key.
    Release,
    /// Adds milliseconds to the time to live, or sets it if a third argument is not `0`. A value that does not expire stays
    /// as it is.
    Extend,
    /// Sets the time to live in milliseconds.
    Expire,
}

/// Text of `Lock.release` of redis-py.
const REDIS_PY_RELEASE: &str = "
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        redis.call('del', KEYS[1])
        return 1
    ";
/// Text of `Lock.extend` of redis-py.
const REDIS_PY_EXTEND: &str = "
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        local expiration = redis.call('pttl', KEYS[1])
        if not expiration then
            expiration = 0
        end
        if expiration < 0 then
            return 0
        end

        local newttl = ARGV[2]
        if ARGV[3] == \"0\" then
            newttl = ARGV[2] + expiration
        end
        redis.call('pexpire', KEYS[1], newttl)
        return 1
    ";
/// Text of `Lock.reacquire` of redis-py.
const REDIS_PY_REACQUIRE: &str = "
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        redis.call('pexpire', KEYS[1], ARGV[2])
        return 1
    ";
/// The script by which the documentation of Redis releases a lock.
const RELEASE: &str = r#"if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("del",KEYS[1])
else
    return 0
end"#;
/// Its counterpart that extends a lock.
const EXPIRE: &str = r#"if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("pexpire",KEYS[1],ARGV[2])
else
    return 0
end"#;

const KNOWN: [(&str, Script); 5] = [
    (REDIS_PY_RELEASE, Script::Release),
    (REDIS_PY_EXTEND, Script::Extend),
    (REDIS_PY_REACQUIRE, Script::Expire),
    (RELEASE, Script::Release),
    (EXPIRE, Script::Expire),
];

impl Script {
    /// Returns the script with this text. Spaces, quotes and comments may differ.
    pub fn of_text(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        // Comments of several lines would pass for code.
        if text.len() > TEXT_BYTES_MAX || text.contains("--[") {
            return None;
        }
        let wanted = normalized(text);
        KNOWN.iter().find(|(known, _)| normalized(known) == wanted).map(|(_, script)| *script)
    }
}

/// Returns the scripts that are known by their digests from the start.
pub fn known_digests() -> impl Iterator<Item = ([u8; DIGEST_BYTES], Script)> {
    KNOWN.iter().map(|(text, script)| (script_digest(text.as_bytes()), *script))
}

/// Returns the SHA-1 digest of a text, by which clients name it.
pub fn script_digest(text: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut bytes = [0; DIGEST_BYTES];
    bytes.copy_from_slice(digest(&SHA1_FOR_LEGACY_USE_ONLY, text).as_ref());
    bytes
}

/// Parses a digest of 40 hexadecimal digits.
pub fn parse_digest(text: &[u8]) -> Option<[u8; DIGEST_BYTES]> {
    if text.len() != 2 * DIGEST_BYTES {
        return None;
    }
    let mut bytes = [0; DIGEST_BYTES];
    for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        *byte = digit(digits[0])? << 4 | digit(digits[1])?;
    }
    Some(bytes)
}

/// Returns a text without comments, with one kind of quotes, and with spaces between words only.
fn normalized(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for line in text.lines() {
        let code = line.split_once("--").map_or(line, |(code, _)| code);
        for word in code.split_whitespace() {
            let is_word = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
            if is_word(result.chars().next_back()) && is_word(word.chars().next()) {
                result.push(' ');
            }
            result.extend(word.chars().map(|letter| if letter == '\'' { '"' } else { letter }));
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_recognised_in_other_layouts() {
        for text in [
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
            "-- release\nif redis.call(\"get\",KEYS[1])==ARGV[1]\nthen\n  return redis.call(\"del\",KEYS[1])\nelse return 0 end\n",
            REDIS_PY_RELEASE,
        ] {
            assert_eq!(Script::of_text(text.as_bytes()), Some(Script::Release), "{text}");
        }
        let expire = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";
        assert_eq!(Script::of_text(expire.as_bytes()), Some(Script::Expire));
        assert_eq!(Script::of_text(REDIS_PY_EXTEND.as_bytes()), Some(Script::Extend));
    }

    #[test]
    fn other_scripts_are_not_recognised() {
        for text in [
            "",
            "return 1",
            "if redis.call('get',KEYS[1]) == ARGV[2] then return redis.call('del',KEYS[1]) else return 0 end",
            "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 1 end",
            "if redis.call('get',KEYS[1]) ~= ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end",
        ] {
            assert_eq!(Script::of_text(text.as_bytes()), None, "{text}");
        }
        let hidden = format!("--[[\n{RELEASE}\n--]]");
        assert_eq!(Script::of_text(hidden.as_bytes()), None, "all of it is a comment");
        assert_eq!(Script::of_text(b"\xff"), None);
        assert_eq!(Script::of_text(" ".repeat(5_000).as_bytes()), None);
    }

    #[test]
    fn digests_are_those_of_redis() {
        let hex = |text: &[u8]| script_digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        // As `SCRIPT LOAD "return 1"` answers.
        assert_eq!(hex(b"return 1"), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        assert_eq!(parse_digest(hex(b"a").to_uppercase().as_bytes()), Some(script_digest(b"a")));
        assert_eq!((parse_digest(b"e0e1"), parse_digest(&[b'g'; 40])), (None, None));
        let digests: Vec<_> = known_digests().collect();
        assert!(digests.iter().all(|(digest, script)| {
            KNOWN.iter().any(|(text, known)| known == script && script_digest(text.as_bytes()) == *digest)
        }));
    }
}
