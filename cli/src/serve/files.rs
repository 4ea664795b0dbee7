//! Limit of open files: a serving process needs a descriptor for each connection.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to the maximum that the system allows this process, and logs it. If that is refused,
/// the process keeps its present limit.
pub(crate) fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let (before, most) = (limit_text(current), limit_text(maximum));
    if before == most {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => tracing::info!(before, now = most, "open files: raised the limit"),
        Err(error) => tracing::warn!(%error, before, most, "open files: the limit stays as it is"),
    }
}

fn limit_text(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_open_files_is_raised_to_the_maximum() {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let fewer = maximum.map_or(4_096, |most| most.saturating_sub(1));
        setrlimit(Resource::Nofile, Rlimit { current: Some(fewer), maximum }).unwrap();
        raise_limit();
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }
}
