//! Idle time of the machine's processors: tests wait longer, and start fewer processes, on a busy machine.

/// Time of all processors since the machine started, in ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessorTime {
    idle: u64,
    all: u64,
}

impl ProcessorTime {
    /// Reads `/proc/stat`; `None` without it.
    pub fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses the first line: user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user time.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        Some(Self { idle: ticks.get(3)? + ticks.get(4)?, all: ticks.iter().sum() })
    }

    /// Returns true if at least this percentage of the time since `earlier` was idle.
    pub const fn idled_since(self, earlier: Self, percent: u64) -> bool {
        let (idle, all) = (self.idle.saturating_sub(earlier.idle), self.all.saturating_sub(earlier.all));
        all > 0 && idle * 100 >= all * percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_io_wait_ticks_count_as_idle() {
        let stat = "cpu  10 1 20 300 40 5 6 7 10 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let earlier = ProcessorTime::parse(stat).expect("ticks");
        assert_eq!(earlier, ProcessorTime { idle: 340, all: 389 });
        let later = |idle, busy| ProcessorTime { idle: earlier.idle + idle, all: earlier.all + idle + busy };
        assert!(later(15, 85).idled_since(earlier, 15) && !later(14, 86).idled_since(earlier, 15));
        assert!(!earlier.idled_since(earlier, 0), "nothing was measured");
        assert_eq!((ProcessorTime::parse(""), ProcessorTime::parse("cpu  1 2 x")), (None, None));
    }
}
