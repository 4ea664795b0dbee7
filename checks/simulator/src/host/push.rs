//! Pushes from the coordinator to nodes.

use super::process::Process;
use crate::event::{CoordinatorMessage, MemberMessage, Push, Registrations, TableUpdates};
use crate::host::carried::CarriedBeat;
use crate::mutant::{ShellMutant, broken_host};
use crate::world::World;
use archon_host::{PushVerdict, reconcile};
use archon_member::RelayEffect;
use archon_types::{TableList, Version};

impl World {
    pub(crate) fn on_coordinator_message(&mut self, host: usize, message: CoordinatorMessage) {
        match message {
            CoordinatorMessage::Push(_) if self.hosts[host].deaf_until > self.truth => {}
            CoordinatorMessage::Push(push) => self.on_push(host, *push),
            other => self.on_session(host, other),
        }
        self.settle(host);
    }

    /// Takes in the updates of a heartbeat answer.
    pub(super) fn take_news(&mut self, host: usize, news: TableUpdates) {
        let told = &mut self.hosts[host].disk.told;
        *told = news.complete.max(*told);
        let unreported = self.breaks(ShellMutant::DropUnreported);
        let Some(process) = &mut self.hosts[host].process else { return };
        self.coverage.news_taken += u64::from(news.complete > process.complete);
        let (changed, told) = process.learn(news.nodes, news.tables.filter(|_| !unreported), Some(news.complete));
        self.perform(host, told);
        if changed {
            self.drive(host, archon_host::Partitions::peers_changed);
        }
        self.settle(host);
    }

    fn on_push(&mut self, host: usize, push: Push) {
        let unreported = self.breaks(ShellMutant::DropUnreported);
        let told = &mut self.hosts[host].disk.told;
        let newest = push.version.max(push.nodes.as_ref().map_or(push.version, |nodes| nodes.version));
        *told = newest.max(*told);
        let Some(process) = &mut self.hosts[host].process else { return };
        let shell = process.partitions.shell_mut();
        let Some(life) = shell.life.filter(|life| life.incarnation == push.incarnation) else { return };
        let taken = process.applied.take(push.incarnation, push.term, push.version, push.duties.is_some());
        if matches!(taken, PushVerdict::Succeeded { .. }) {
            return;
        }
        let (news, told) = process.learn(push.nodes, push.tables.filter(|_| !unreported), push.complete);
        let duties = push.duties.filter(|_| taken == PushVerdict::Duties);
        if duties.is_some() {
            process.applied.note(push.term, push.version);
        }
        let version = process.applied.version();
        let answer = MemberMessage::Pushed { node: life.node, number: push.number, version };
        self.send_to_coordinator(host, push.coordinator, answer);
        self.perform(host, told);
        let Some(process) = &self.hosts[host].process else { return };
        let broken = broken_host(self.mutant);
        let actions = duties.map(|duties| reconcile(life.node, &process.held(), &duties, broken).actions);
        self.checks.leases_changed = true;
        self.drive(host, |partitions| {
            if news {
                partitions.peers_changed();
            }
            if let Some(actions) = actions {
                partitions.duties(push.incarnation, actions);
            }
        });
    }
}

impl Process {
    /// Takes in registrations and tables. Returns whether other nodes or their incarnations changed, and the resulting
    /// messages to relayed members.
    fn learn(
        &mut self,
        nodes: Option<Registrations>,
        tables: Option<TableList>,
        complete: Option<Version>,
    ) -> (bool, Vec<RelayEffect<CarriedBeat>>) {
        let shell = self.partitions.shell_mut();
        let (mut changed, mut told) = (false, Vec::new());
        if let Some(registrations) = nodes.filter(|nodes| nodes.version >= self.peers_version) {
            self.peers_version = registrations.version;
            for (node, incarnation, failed) in registrations.nodes {
                let known = shell.peers.insert(node, (incarnation, failed));
                changed |= known != Some((incarnation, failed));
            }
            told = self.relaying.take_rows(registrations.version, registrations.rows, registrations.removed);
        }
        let newer = |list: &TableList| (list.version, list.last) > (shell.tables.version, shell.tables.last);
        if let Some(list) = tables.filter(newer) {
            shell.tables = list;
        }
        self.complete = complete.map_or(self.complete, |complete| complete.max(self.complete));
        (changed, told)
    }
}
