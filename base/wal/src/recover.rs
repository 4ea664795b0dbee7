//! Recovery at start-up: reads the directory and makes the end of the log durable.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::config::WalConfig;
use crate::disk::{Disk, DiskFile};
use crate::error::WalError;
use crate::format::{
    FORMAT, FRAME_HEADER_BYTES, Frame, HeaderError, SEGMENT_HEADER_BYTES, SegmentHeader, Steps, peek_frame, read_frame,
};
use crate::index::{Index, SegmentEntry};
use crate::mark;
use crate::replay::{Damage, Replay};
use crate::segment::{Active, parse_segment_name, parse_spare_name};
use crate::segment_pool::Spare;

/// Result of recovery.
#[derive(Debug)]
pub(crate) struct LogRecovery {
    pub(crate) index: Index,
    pub(crate) damages: Vec<Damage>,
    /// Set if no snapshot follows the last damage.
    pub(crate) unsettled: bool,
    pub(crate) torn_bytes_cut: u64,
    /// The segment to continue in; `None` for an empty directory or a damaged segment header.
    pub(crate) active: Option<Active>,
    /// Generation of the next segment.
    pub(crate) generation_next: u64,
    pub(crate) spares: VecDeque<Spare>,
    pub(crate) spare_id_next: u64,
}

struct SegmentFile {
    generation: u64,
    name: String,
    file: Arc<dyn DiskFile>,
    size: u64,
    header: Result<SegmentHeader, &'static str>,
}

/// The end of the newest segment.
#[derive(Debug, Clone, Copy, Default)]
struct End {
    /// Offset of the next frame.
    end: usize,
    /// Start of the last write, which may not be synced.
    group: usize,
    /// End of the remains of a torn write.
    torn_end: usize,
    torn_bytes: u64,
    /// Checksum of the last frame.
    chain: u32,
}

pub(crate) fn recover(disk: &dyn Disk, config: &WalConfig) -> Result<LogRecovery, WalError> {
    let (segments, spare_files, spare_id_next) = list(disk)?;
    // Older segments were written without errors.
    if let Some(newest) = segments.last() {
        newest.file.forget_copies();
    }
    let mark = mark::read(disk)?;
    let mut replay = Replay::default();
    let mut end = End::default();
    for (at, segment) in segments.iter().enumerate() {
        if let Some(before) = at.checked_sub(1).and_then(|before| segments.get(before))
            && before.generation + 1 != segment.generation
        {
            let (first, last) = (before.generation + 1, segment.generation - 1);
            let what = format!("segments {first:016x} to {last:016x} are missing");
            replay.damage_unknown(first, 0, what);
        }
        end = replay_segment(&mut replay, segment, segments.get(at + 1), mark)?;
    }
    if let Some(mark) = mark.filter(|mark| replay.index.batch < *mark) {
        // No segment is left that could contain these batches, or the newest one lost its header.
        let (generation, offset) = segments.last().map_or((0, 0), |segment| (segment.generation, 0));
        replay.damage_missing(generation, offset, mark);
    }
    let unsettled = replay.unsettled;
    let (index, damages) = replay.finish();
    if config.refuse_damage {
        refuse(&index, &damages)?;
    }

    let generation_next = segments.last().map_or(1, |segment| segment.generation + 1);
    let mut active = None;
    let mut torn_bytes_cut = 0;
    if let Some(segment) = segments.last()
        && let Ok(header) = segment.header
    {
        secure(disk, segment, end)?;
        torn_bytes_cut = end.torn_bytes;
        active = Some(go_on(disk, segment, header, end)?);
    }
    let spares = take_spares(disk, config, spare_files)?;
    Ok(LogRecovery { index, damages, unsettled, torn_bytes_cut, active, generation_next, spares, spare_id_next })
}

type SegmentList = (Vec<SegmentFile>, Vec<(String, u64)>, u64);

fn list(disk: &dyn Disk) -> Result<SegmentList, WalError> {
    let mut segments = Vec::new();
    let mut spares = Vec::new();
    let mut spare_id_next = 0;
    for (name, size) in disk.list().map_err(failed("list", "the log directory"))? {
        if let Some(generation) = parse_segment_name(&name) {
            segments.push(open_segment(disk, generation, name, size)?);
        } else if let Some(id) = parse_spare_name(&name) {
            spare_id_next = spare_id_next.max(id.saturating_add(1));
            spares.push((name, size));
        }
    }
    segments.sort_unstable_by_key(|segment| segment.generation);
    spares.sort_unstable();
    Ok((segments, spares, spare_id_next))
}

fn open_segment(disk: &dyn Disk, generation: u64, name: String, size: u64) -> Result<SegmentFile, WalError> {
    let file = disk.open(&name).map_err(failed("open", &name))?;
    let mut start = vec![0u8; SEGMENT_HEADER_BYTES.min(usize::try_from(size).unwrap_or(0))];
    file.read_at(0, &mut start).map_err(failed("read", &name))?;
    let header = match SegmentHeader::decode(&start) {
        Ok(header) if header.generation == generation => Ok(header),
        Ok(_) => Err("the header names another generation than the file"),
        Err(HeaderError::Bad(what)) => Err(what),
        Err(HeaderError::Format(found)) => {
            return Err(WalError::OtherFormat { segment: generation, found, supported: FORMAT });
        }
    };
    Ok(SegmentFile { generation, name, file, size, header })
}

fn replay_segment(
    replay: &mut Replay,
    segment: &SegmentFile,
    next: Option<&SegmentFile>,
    mark: Option<u64>,
) -> Result<End, WalError> {
    let generation = segment.generation;
    let entry = SegmentEntry { file: segment.file.clone(), size: segment.size, live: 0 };
    replay.index.segments.insert(generation, entry);
    let header = match segment.header {
        Ok(header) => header,
        Err(what) => {
            replay.damage_unknown(generation, 0, what.to_owned());
            return Ok(End::default());
        }
    };
    let mut bytes = vec![0u8; usize::try_from(segment.size.min(header.size)).unwrap_or(0)];
    segment.file.read_at(0, &mut bytes).map_err(failed("read", &segment.name))?;
    // The next segment names the last batch of this one; bytes behind it are irrelevant.
    let batch_last = next
        .filter(|next| next.generation == generation + 1)
        .and_then(|next| next.header.ok())
        .map(|next| next.base_batch);

    let newest = next.is_none();
    let scan = Scan { bytes: &bytes, header, newest, mark: mark.filter(|_| newest) };
    let end = scan.run(replay, batch_last);
    if let Some(batch) = batch_last
        && replay.index.batch < batch
    {
        replay.damage_missing(generation, end.end as u64, batch);
    }
    Ok(end)
}

struct Scan<'a> {
    bytes: &'a [u8],
    header: SegmentHeader,
    newest: bool,
    /// The last batch noted as durable, in the newest segment.
    mark: Option<u64>,
}

impl Scan<'_> {
    fn run(&self, replay: &mut Replay, batch_last: Option<u64>) -> End {
        let generation = self.header.generation;
        let mut at = SEGMENT_HEADER_BYTES;
        let mut end = End { end: at, group: at, ..End::default() };
        let mut damage_reported = false;
        replay.index.batch = replay.index.batch.max(self.header.base_batch);
        loop {
            if batch_last == Some(replay.index.batch) && at > SEGMENT_HEADER_BYTES {
                return end;
            }
            let chain = (!damage_reported).then_some(end.chain);
            let Some((frame, crc)) = self.frame(replay, at, chain) else {
                let after = self.frames_after(at);
                let torn = after.iter().all(|(_, frame)| frame.group as usize <= at);
                let Some((next, _)) = after.first().filter(|_| !self.newest || !torn || self.owes(replay)) else {
                    if at == SEGMENT_HEADER_BYTES {
                        // The snapshot was durable before the segment got its name.
                        replay.damage_snapshot(generation, at as u64);
                    }
                    if let Some(mark) = self.mark.filter(|_| self.owes(replay)) {
                        if let Some(bytes) = self.report_last(replay, at) {
                            damage_reported = true;
                            at += bytes;
                            continue;
                        }
                        replay.damage_missing(generation, at as u64, mark);
                        // Left unchanged: these are not the remains of a torn write.
                        return End { end: at, torn_end: at, ..end };
                    }
                    return self.finish(end, at, &after);
                };
                self.report_damage(replay, at, *next);
                damage_reported = true;
                at = *next;
                continue;
            };
            let payload = at + FRAME_HEADER_BYTES;
            let payload = &self.bytes[payload..payload + frame.payload_bytes];
            if frame.snapshot {
                replay.snapshot(generation, at, frame, payload);
            } else {
                if frame.batch != replay.index.batch.saturating_add(1) && !damage_reported {
                    let what =
                        format!("batches {} to {} are missing", replay.index.batch.saturating_add(1), frame.batch - 1);
                    replay.damage_unknown(generation, at as u64, what);
                }
                replay.batch(generation, at, frame, payload);
            }
            damage_reported = false;
            at += frame.bytes();
            end = End { end: at, group: frame.group as usize, chain: crc, ..End::default() };
        }
    }

    /// Returns the frame at `at`, unless it repeats known batches: then it is a remainder. Directly after damage the
    /// previous frame is unknown.
    fn frame(&self, replay: &Replay, at: usize, chain: Option<u32>) -> Option<(Frame, u32)> {
        let (frame, crc) = read_frame(self.bytes, at, &self.header)?;
        let expected = if frame.snapshot { at == SEGMENT_HEADER_BYTES } else { frame.batch > replay.index.batch };
        let continues = chain.is_none_or(|chain| chain == frame.chain);
        (expected && continues && frame.group as usize <= at).then_some((frame, crc))
    }

    /// Returns whether batches that were durable are missing.
    fn owes(&self, replay: &Replay) -> bool {
        self.mark.is_some_and(|mark| replay.index.batch < mark)
    }

    /// Reports damage of the last frame if its header and those of its steps are still readable; returns its length.
    fn report_last(&self, replay: &mut Replay, at: usize) -> Option<usize> {
        let generation = self.header.generation;
        let frame = peek_frame(self.bytes, at, generation)?;
        let payload = at + FRAME_HEADER_BYTES;
        let payload = &self.bytes[payload..payload + frame.payload_bytes];
        let next = !frame.snapshot && frame.batch == replay.index.batch.saturating_add(1);
        if !next || Steps::new(payload).any(|step| step.is_none()) {
            return None;
        }
        replay.damage_frame(generation, at as u64, frame, payload);
        Some(frame.bytes())
    }

    /// Returns all whole frames behind an unreadable place.
    fn frames_after(&self, at: usize) -> Vec<(usize, Frame)> {
        let mut found = Vec::new();
        let mut at = at + 8;
        while at + FRAME_HEADER_BYTES <= self.bytes.len() {
            match read_frame(self.bytes, at, &self.header) {
                Some((frame, _)) => {
                    found.push((at, frame));
                    at += frame.bytes();
                }
                None => at += 8,
            }
        }
        found
    }

    fn report_damage(&self, replay: &mut Replay, at: usize, next: usize) {
        let generation = self.header.generation;
        // Trust the broken frame's length only if the next frame begins there.
        let frame = peek_frame(self.bytes, at, generation)
            .filter(|frame| at + frame.bytes() == next)
            .filter(|frame| frame.snapshot || frame.batch == replay.index.batch.saturating_add(1));
        match frame {
            Some(frame) => {
                let payload = at + FRAME_HEADER_BYTES;
                let payload = &self.bytes[payload..payload + frame.payload_bytes];
                replay.damage_frame(generation, at as u64, frame, payload);
            }
            None => {
                let what = format!("{} bytes hold no whole batch", next - at);
                replay.damage_unknown(generation, at as u64, what);
            }
        }
    }

    fn finish(&self, end: End, at: usize, after: &[(usize, Frame)]) -> End {
        let partial = peek_frame(self.bytes, at, self.header.generation).map_or(at, |frame| at + frame.bytes());
        let whole = after.last().map_or(at, |(at, frame)| at + frame.bytes());
        let torn_end = partial.max(whole);
        End { end: at, torn_end, torn_bytes: (torn_end - at) as u64, ..end }
    }
}

fn refuse(index: &Index, damages: &[Damage]) -> Result<(), WalError> {
    if let Some(damage) = damages.first() {
        let (segment, offset, what) = (damage.segment, damage.offset, damage.what.clone());
        return Err(WalError::Corrupt { segment, offset, what });
    }
    let frozen = index.streams.iter().filter(|(_, entry)| entry.tail.frozen);
    if let Some(stream) = frozen.map(|(stream, _)| *stream).min() {
        let segment = index.segments.first_key_value().map_or(0, |(segment, _)| *segment);
        let what = format!("stream {stream} was found damaged earlier");
        return Err(WalError::Corrupt { segment, offset: SEGMENT_HEADER_BYTES as u64, what });
    }
    Ok(())
}

/// Makes the recovered data durable. Bytes in the page cache that survived the end of a process may not be on the
/// disk, and after a failed sync the system may assume that they are. So the last write is repeated; everything
/// before it was synced before it began.
fn secure(disk: &dyn Disk, segment: &SegmentFile, end: End) -> Result<(), WalError> {
    let mut last = vec![0u8; end.end - end.group];
    let file = &segment.file;
    file.read_at(end.group as u64, &mut last).map_err(failed("read", &segment.name))?;
    // Whole frames behind the cut would become valid again after the next write.
    last.resize(last.len() + end.torn_end.saturating_sub(end.end), 0);
    if !last.is_empty() {
        file.write_at(end.group as u64, &last).map_err(failed("write", &segment.name))?;
    }
    file.sync().map_err(failed("sync", &segment.name))?;
    disk.sync_directory().map_err(failed("sync", "the log directory"))
}

/// Opens the newest segment for writing at its end.
fn go_on(disk: &dyn Disk, segment: &SegmentFile, header: SegmentHeader, end: End) -> Result<Active, WalError> {
    let out = disk.open_durable(&segment.name).map_err(failed("open", &segment.name))?;
    let mut tail = vec![0u8; Active::tail_bytes(&*out, end.end)];
    segment.file.read_at((end.end - tail.len()) as u64, &mut tail).map_err(failed("read", &segment.name))?;
    Ok(Active { header, file: segment.file.clone(), out, tail, end: end.end as u32, chain: end.chain })
}

fn take_spares(disk: &dyn Disk, config: &WalConfig, files: Vec<(String, u64)>) -> Result<VecDeque<Spare>, WalError> {
    let mut spares = VecDeque::new();
    for (name, size) in files {
        if size == config.segment_bytes && spares.len() < config.spares_max() {
            let file = disk.open(&name).map_err(failed("open", &name))?;
            spares.push_back(Spare { name, file });
        } else {
            // Unfinished, of another size, or surplus.
            disk.remove(&name).map_err(failed("remove", &name))?;
        }
    }
    Ok(spares)
}

fn failed(action: &'static str, path: &str) -> impl FnOnce(io::Error) -> WalError {
    let path = path.to_owned();
    move |source| WalError::Io { action, path, source }
}
