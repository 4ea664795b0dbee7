//! Idle time of the processors that tests may use: tests wait longer, and start fewer processes, without idle time.

use std::path::Path;

/// Time of the machine's processors since it started, and of those that the control group of this process may use.
///
/// In a container with a quota the machine may idle while this process has used up its share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessorTime {
    machine: Span,
    /// With a quota (`cpu.max` of version 2) only.
    group: Option<Span>,
}

/// Time of some processors, in a unit of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    idle: i128,
    all: i128,
}

impl ProcessorTime {
    /// Reads the current times; `None` without `/proc/stat`.
    pub fn now() -> Option<Self> {
        Self::read(Path::new("/"))
    }

    /// Reads the times of the system below `root`.
    fn read(root: &Path) -> Option<Self> {
        let read = |path: &Path| std::fs::read_to_string(root.join(path)).ok();
        let machine = Span::of_machine(&read(Path::new("proc/stat"))?)?;
        let group = || {
            let groups = read(Path::new("proc/self/cgroup"))?;
            let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
            let own = Path::new("sys/fs/cgroup").join(own);
            let quotas =
                own.ancestors().filter_map(|group| Some((group, Quota::parse(&read(&group.join("cpu.max"))?)?)));
            let (group, quota) =
                quotas.min_by(|(_, one), (_, other)| one.processors().total_cmp(&other.processors()))?;
            Span::of_group(quota, &read(&group.join("cpu.stat"))?, &read(Path::new("proc/uptime"))?)
        };
        Some(Self { machine, group: group() })
    }

    /// Returns true if at least this percentage of the time since `earlier` was idle: of the machine's time, and of the
    /// control group's share.
    pub fn idled_since(self, earlier: Self, percent: u8) -> bool {
        let group = self.group.zip(earlier.group);
        self.machine.idled_since(earlier.machine, percent)
            && group.is_none_or(|(now, earlier)| now.idled_since(earlier, percent))
    }
}

impl Span {
    /// Parses the first line of `/proc/stat`, in ticks: user, nice, system, idle, iowait, irq, softirq, steal; guests are part of
    /// user time.
    fn of_machine(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<i128> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        Some(Self { idle: ticks.get(3)? + ticks.get(4)?, all: ticks.iter().sum() })
    }

    /// Returns the share of a control group since the machine started, in microseconds, from its `cpu.stat` and `/proc/uptime`.
    fn of_group(quota: Quota, stat: &str, uptime: &str) -> Option<Self> {
        let used: i128 = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?.trim().parse().ok()?;
        let (seconds, hundredths) = uptime.split_whitespace().next()?.split_once('.')?;
        let hundredths = seconds.parse::<i128>().ok()? * 100 + hundredths.parse::<i128>().ok()?;
        let all = hundredths * 10_000 * i128::from(quota.micros) / i128::from(quota.period_micros);
        // Negative for a group that is younger than the machine and had more earlier: only differences count.
        Some(Self { idle: all - used, all })
    }

    fn idled_since(self, earlier: Self, percent: u8) -> bool {
        let (idle, all) = (self.idle - earlier.idle, self.all - earlier.all);
        all > 0 && idle * 100 >= all * i128::from(percent)
    }
}

/// Processor time that a control group may use in each period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Quota {
    micros: u32,
    period_micros: u32,
}

impl Quota {
    /// Parses `cpu.max`; `None` without a limit.
    fn parse(max: &str) -> Option<Self> {
        let (micros, period_micros) = max.trim().split_once(' ')?;
        let quota = Self { micros: micros.parse().ok()?, period_micros: period_micros.parse().ok()? };
        (quota.period_micros > 0).then_some(quota)
    }

    fn processors(self) -> f64 {
        f64::from(self.micros) / f64::from(self.period_micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// Files of a system: `/proc` and control groups.
    struct System(TempDir);

    impl System {
        fn new(files: &[(&str, &str)]) -> Self {
            let system = Self(TempDir::new().unwrap());
            files.iter().for_each(|(path, text)| system.put(path, text));
            system
        }

        fn put(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn read(&self) -> Option<ProcessorTime> {
            ProcessorTime::read(self.0.path())
        }
    }

    #[test]
    fn idle_and_io_wait_ticks_count_as_idle() {
        let stat = "cpu  10 1 20 300 40 5 6 7 10 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let earlier = Span::of_machine(stat).expect("ticks");
        assert_eq!(earlier, Span { idle: 340, all: 389 });
        let later = |idle, busy| Span { idle: earlier.idle + idle, all: earlier.all + idle + busy };
        assert!(later(15, 85).idled_since(earlier, 15) && !later(14, 86).idled_since(earlier, 15));
        assert!(!earlier.idled_since(earlier, 0), "nothing was measured");
        assert_eq!((Span::of_machine(""), Span::of_machine("cpu  1 2 x")), (None, None));
    }

    #[test]
    fn group_at_its_quota_is_busy_on_an_idle_machine() {
        let system = System::new(&[
            ("proc/stat", "cpu  0 0 0 1000 0 0 0 0 0 0\n"),
            ("proc/uptime", "10.00 80.00\n"),
            ("proc/self/cgroup", "1:cpu:/other\n0::/pods/tests\n"),
            ("sys/fs/cgroup/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/pods/cpu.max", "400000 100000\n"),
            ("sys/fs/cgroup/pods/tests/cpu.max", "200000 100000\n"),
            ("sys/fs/cgroup/pods/tests/cpu.stat", "usage_usec 7000000\nuser_usec 6000000\nsystem_usec 1000000\n"),
        ]);
        let earlier = system.read().expect("times");
        assert_eq!(earlier.group, Some(Span { idle: 13_000_000, all: 20_000_000 }));
        // One second, in which the group may use two.
        system.put("proc/stat", "cpu  200 0 0 1600 0 0 0 0 0 0\n");
        system.put("proc/uptime", "11.00 86.00\n");
        for (used, idled) in [(1_600_000, true), (1_800_000, false), (2_200_000, false)] {
            let stat = format!("usage_usec {}\n", 7_000_000 + used);
            system.put("sys/fs/cgroup/pods/tests/cpu.stat", &stat);
            assert_eq!(system.read().expect("times").idled_since(earlier, 15), idled, "{used}");
        }
    }

    #[test]
    fn group_below_its_quota_is_busy_on_a_busy_machine() {
        let system = System::new(&[
            ("proc/stat", "cpu  0 0 0 0 0 0 0 0 0 0\n"),
            ("proc/uptime", "0.50 0.00\n"),
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/cpu.max", "50000 100000\n"),
            ("sys/fs/cgroup/cpu.stat", "usage_usec 0\n"),
        ]);
        let earlier = system.read().expect("times");
        system.put("proc/stat", "cpu  100 0 0 0 0 0 0 0 0 0\n");
        system.put("proc/uptime", "1.00 0.00\n");
        assert!(!system.read().expect("times").idled_since(earlier, 15));
    }

    #[test]
    fn machine_decides_without_a_quota() {
        let system = System::new(&[("proc/stat", "cpu  0 0 0 0 0 0 0 0 0 0\n")]);
        assert_eq!(system.read().map(|time| time.group), Some(None));
        system.put("proc/self/cgroup", "4:cpu:/box\n0::/box\n");
        for max in ["max 100000\n", "nonsense", "1 0\n", ""] {
            system.put("sys/fs/cgroup/box/cpu.max", max);
            assert_eq!(system.read().map(|time| time.group), Some(None), "{max:?}");
        }
        assert_eq!(System::new(&[]).read(), None);
    }

    #[test]
    fn times_of_this_machine_are_known() {
        assert!(ProcessorTime::now().is_some());
    }
}
