//! Pushes: what the coordinator has a node do.

use crate::event::{CoordinatorMessage, Event, MemberMessage, Push};
use crate::mutant::{ShellMutant, broken_host};
use crate::network::End;
use crate::world::World;
use archon_host::{Pushed, reconcile};
use archon_types::TableList;

impl World {
    pub(crate) fn on_coordinator_message(&mut self, host: usize, message: CoordinatorMessage) {
        match message {
            CoordinatorMessage::Push(_) if self.hosts[host].deaf_until > self.truth => {}
            CoordinatorMessage::Push(push) => self.on_push(host, *push),
            other => self.on_session(host, other),
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
        if matches!(taken, Pushed::Succeeded { .. }) {
            return;
        }
        let (mut news, mut told) = (false, Vec::new());
        if let Some(registrations) = push.nodes.filter(|nodes| nodes.version >= process.peers_version) {
            process.peers_version = registrations.version;
            for (node, incarnation, failed) in registrations.nodes {
                let known = shell.peers.insert(node, (incarnation, failed));
                news |= known != Some((incarnation, failed));
            }
            told = process.relaying.take_rows(registrations.rows, registrations.removed);
        }
        let newer = |list: &TableList| (list.version, list.last) > (shell.tables.version, shell.tables.last);
        if let Some(list) = push.tables.filter(newer).filter(|_| !unreported) {
            shell.tables = list;
        }
        let duties = push.duties.filter(|_| taken == Pushed::Duties);
        if duties.is_some() {
            process.applied.note(push.term, push.version);
        }
        let version = process.applied.version();
        let answer = MemberMessage::Pushed { node: life.node, number: push.number, version };
        let coordinator = push.coordinator;
        self.send(
            End::Host(host),
            End::Coordinator(coordinator),
            Event::MemberMessage { coordinator, host, message: answer },
        );
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
