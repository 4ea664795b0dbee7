//! Members that lived in another history of the cluster (PROTOCOL rule 60).

use crate::mutant::Mutant;
use crate::state::ClusterState;
use crate::state::node_row::NodeRow;
use archon_types::{ErrorDetail, ErrorKind, GenerationKey, Register, generation_of};

/// Returns true if the directory last acted in a generation that has a number of this state's history but another key.
pub(super) fn is_of_other_history(state: &ClusterState, register: &Register) -> bool {
    let generation = register.last_incarnation.map(|last| generation_of(last.get()));
    generation.is_some_and(|generation| state.generation_key(generation) != register.generation_key)
}

/// Rejects a node that lived in a later generation than this one, or in another one of this number: the recovery did
/// not include it, so this state must not be mistaken for the one that it knows (PROTOCOL rule 60).
pub(super) fn of_this_generation(
    state: &ClusterState,
    register: &Register,
    known: Option<&NodeRow>,
) -> Result<(), ErrorDetail> {
    let Some(last) = register.last_incarnation else { return Ok(()) };
    let generation = generation_of(last.get());
    if state.breaks(Mutant::LaterGenerationTaken) || generation < state.generation {
        return Ok(());
    }
    let here = known.is_some_and(|known| known.node.incarnation >= last);
    // Nothing else distinguishes generations without a key.
    let unknown = state.recovery.is_some() && !here && register.participant.is_none();
    let (name, own) = (&register.name, state.generation_key(generation));
    let what = if generation > state.generation {
        format!(
            "{name} has lived in generation {generation} of this cluster, and these coordinators are of generation {}",
            state.generation
        )
    } else if is_of_other_history(state, register) || unknown {
        let [theirs, ours] = [register.generation_key, own].map(shown);
        format!(
            "{name} has lived in another generation {generation} of this cluster ({theirs}) than that of these coordinators ({ours}): \
             one number was given to two recoveries"
        )
    } else {
        return Ok(());
    };
    let message = format!(
        "{what}. Stop these if others run that are to be kept; if these are, stop all others and recover these again with --generation {}",
        generation + 1
    );
    Err(ErrorDetail::new(ErrorKind::OtherHistory, message).with_retry_after_ms(1_000))
}

/// Takes no member while former coordinators may work: they would refuse it from then on (PROTOCOL rule 60).
///
/// # Errors
/// `OtherHistory`, retryable.
pub(super) fn check_taken_over(state: &ClusterState) -> Result<(), ErrorDetail> {
    if !state.stands_by() || state.breaks(Mutant::TakenWhileStandingBy) {
        return Ok(());
    }
    let message = format!(
        "these coordinators, of generation {}, take no member while coordinators of a generation before may work; `archon quorum list` says \
         which, and what to do",
        state.generation
    );
    Err(ErrorDetail::new(ErrorKind::OtherHistory, message).with_retry_after_ms(1_000))
}

/// Formats a generation's key for people.
fn shown(key: GenerationKey) -> String {
    if key.is_nil() { "without a key".to_owned() } else { format!("key {key}") }
}
