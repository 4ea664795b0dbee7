//! Rounds of disturbances on a local cluster, and its recovery.

use super::disturb::{Stage, TIMEOUT};
use crate::args::{Disturbance, FailoverArgs};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use archon_client::{Admin, NodeGoal, NodeStatus, Role};
use archon_load::{CheckOutcome, Wait, Window, wait_for, watch};
use archon_local_cluster::{Cluster, LATE_NODE};
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Undisturbed time between two rounds.
const CALM: Duration = Duration::from_secs(1);

/// Time limit of one request during a search for a leader: short, so that the next attempt is soon.
const REQUEST_LIMIT: Duration = Duration::from_millis(250);

/// One disturbance.
#[derive(Debug, Serialize)]
pub(super) struct Round {
    /// Absent for a disturbance from outside on an existing cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    disturbance: Option<Disturbance>,
    /// Disturbance and its target.
    pub(super) what: String,
    /// During the disturbance, and after.
    pub(super) disturbed: Window,
    /// Duration of this window.
    seconds: f64,
    /// During the recovery of the cluster, if a process was down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) healing: Option<Window>,
}

impl Round {
    pub(super) fn new(disturbance: Option<Disturbance>, what: String, disturbed: Window, began: Instant) -> Self {
        Self { disturbance, what, disturbed, seconds: began.elapsed().as_secs_f64(), healing: None }
    }

    pub(super) fn name(&self) -> &'static str {
        self.disturbance.map_or("disturbed", Disturbance::name)
    }
}

/// Rounds of a measurement.
pub(super) struct Rounds<'a> {
    args: &'a FailoverArgs,
    cluster: &'a mut Cluster,
    stage: &'a Stage,
    output: &'a Output,
    /// The node that is down.
    victim: Option<String>,
}

impl<'a> Rounds<'a> {
    pub(super) const fn new(
        args: &'a FailoverArgs,
        cluster: &'a mut Cluster,
        stage: &'a Stage,
        output: &'a Output,
    ) -> Self {
        Self { args, cluster, stage, output, victim: None }
    }

    /// Runs the rounds one after the other.
    ///
    /// # Errors
    /// If the cluster misses a time limit; `played` has the rounds until then.
    pub(super) async fn play(&mut self, played: &mut Vec<Round>) -> Result<(), Failure> {
        let asked = if self.args.disturb.is_empty() { &[Disturbance::Kill][..] } else { &self.args.disturb };
        for disturbance in asked {
            for number in 1..=self.args.rounds {
                self.stage.probers.all_succeed(TIMEOUT).await?;
                sleep(CALM).await;
                let round = self.round(*disturbance, number).await?;
                self.output.talk(format!("{}, round {number}: {}", round.name(), round.what));
                played.push(round);
            }
        }
        Ok(())
    }

    async fn round(&mut self, disturbance: Disturbance, number: u32) -> Result<Round, Failure> {
        let (probers, began) = (&self.stage.probers, Instant::now());
        probers.mark();
        let what = match disturbance {
            Disturbance::Calm => "nothing happened".to_owned(),
            Disturbance::Kill | Disturbance::Stop => self.node_ends(disturbance == Disturbance::Kill).await?,
            Disturbance::Move => self.moves(number % 2 == 1).await?,
            Disturbance::CoordinatorLeader => self.leader_dies().await?,
            Disturbance::QuorumKill => self.quorum_restarts(true).await?,
            Disturbance::QuorumStop => self.quorum_restarts(false).await?,
            Disturbance::Outage => {
                self.cluster.kill_coordinators();
                sleep(self.args.outage).await;
                format!("all coordinators were down for {:?}", self.args.outage)
            }
        };
        // Without a quorum, partitions with a single copy are unavailable.
        if disturbance != Disturbance::Outage {
            probers.all_succeed(TIMEOUT).await?;
        }
        sleep(self.args.duration.saturating_sub(began.elapsed()).max(CALM)).await;
        let mut round = Round::new(Some(disturbance), what, probers.window(), began);
        if matches!(
            disturbance,
            Disturbance::Kill | Disturbance::Stop | Disturbance::CoordinatorLeader | Disturbance::Outage
        ) {
            probers.mark();
            self.heal().await?;
            round.healing = Some(probers.window());
        }
        Ok(round)
    }

    /// Starts the stopped processes, and gives a restarted node its share of the leaderships back.
    async fn heal(&mut self) -> Result<(), Failure> {
        self.cluster.start_coordinators()?;
        if let Some(victim) = self.victim.take() {
            self.cluster.start_node(&victim)?;
            self.whole().await?;
            watch::rebalance(&self.stage.admin, TIMEOUT).await?;
        }
        self.whole().await?;
        sleep(CALM).await;
        Ok(())
    }

    async fn whole(&self) -> Result<(), Failure> {
        watch::until_whole(&self.stage.admin, usize::from(self.args.probe.local.replication), TIMEOUT).await?;
        self.stage.probers.all_succeed(TIMEOUT).await?;
        Ok(())
    }

    /// Stops the node that leads most of the probed partitions.
    async fn node_ends(&mut self, killed: bool) -> Result<String, Failure> {
        let probed: Vec<u32> = self.stage.probers.partitions().collect();
        let led = watch::led(&self.stage.admin.table(&self.stage.table).await?);
        let count = |ids: &[u32]| probed.iter().filter(|id| ids.contains(id)).count();
        let most = led.iter().map(|(name, ids)| (count(ids), name.clone())).max();
        let (count, victim) = most.ok_or_else(|| Failure::new(Exit::Unreachable, "no partition has a leader"))?;
        if killed {
            self.cluster.kill_node(&victim)?;
        } else {
            self.cluster.stop_node(&victim).await?;
        }
        self.victim = Some(victim.clone());
        watch::until_node(&self.stage.admin, &victim, NodeStatus::Failed, TIMEOUT).await?;
        let how = if killed { "killed" } else { "stopped" };
        Ok(format!("{victim}, which led for {count} of {} writers, was {how}", probed.len()))
    }

    /// Adds a fourth node with its share of copies, or drains it.
    async fn moves(&mut self, joins: bool) -> Result<String, Failure> {
        let admin = &self.stage.admin;
        let known = admin.list_nodes().await?.iter().any(|node| node.name == LATE_NODE);
        match (joins, known) {
            (true, false) => self.cluster.start_node(LATE_NODE)?,
            (true, true) => drop(admin.set_node(LATE_NODE, NodeGoal::Serve).await?),
            (false, _) => drop(admin.set_node(LATE_NODE, NodeGoal::Drain).await?),
        }
        if joins {
            watch::until_node(admin, LATE_NODE, NodeStatus::Alive, TIMEOUT).await?;
        }
        let moved = watch::rebalance(admin, TIMEOUT).await?;
        self.whole().await?;
        let emptied = async || {
            let nodes = admin.list_nodes().await.map_err(watch::said)?;
            let held = nodes.iter().find(|node| node.name == LATE_NODE).map_or(0, |node| node.copies_held);
            if joins || held == 0 { Ok(()) } else { Err(format!("it holds {held} replicas")) }
        };
        watch::until("the drained node to be empty", TIMEOUT, emptied).await?;
        let what = if joins { "joined" } else { "was drained" };
        Ok(format!("{LATE_NODE} {what}; {} moves were planned and made", moved.moves))
    }

    async fn leader_dies(&mut self) -> Result<String, Failure> {
        let (leader, _) = self.leader(0).await?;
        self.cluster.kill_coordinator(leader)?;
        let (next, took) = self.leader(leader).await?;
        Ok(format!("coordinator {leader} was killed; {next} answered as leader after {} ms", took.as_millis()))
    }

    /// Waits until a coordinator other than `former` leads.
    async fn leader(&mut self, former: u64) -> Result<(u64, Duration), Failure> {
        let admin =
            Admin::with_transport(self.cluster.endpoints(), REQUEST_LIMIT, self.cluster.transport(Role::Admin)?)?;
        wait_for("a leading coordinator", TIMEOUT, Wait::EVERY, async || {
            self.cluster.check_alive()?;
            Ok(match admin.status().await.map(|status| status.leader_id.filter(|id| *id != former)) {
                Ok(Some(leader)) => CheckOutcome::Yes(leader),
                Ok(None) => CheckOutcome::NotYet("no leader".to_owned()),
                Err(error) => CheckOutcome::NotYet(error.to_string()),
            })
        })
        .await
    }

    async fn quorum_restarts(&mut self, killed: bool) -> Result<String, Failure> {
        if killed {
            self.cluster.kill_coordinators();
        } else {
            self.cluster.stop_coordinators().await?;
        }
        self.cluster.start_coordinators()?;
        let (_, took) = self.leader(0).await?;
        self.whole().await?;
        let how = if killed { "killed" } else { "stopped" };
        Ok(format!("all coordinators were {how} and started; one led after {} ms", took.as_millis()))
    }
}
