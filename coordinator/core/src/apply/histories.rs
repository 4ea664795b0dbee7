//! Members that have lived in another history of the cluster (PROTOCOL rule 60).

use crate::mutant::Mutant;
use crate::node_row::NodeRow;
use crate::registration::Register;
use crate::state::ClusterState;
use archon_types::{ErrorDetail, ErrorKind, GenerationKey, generation_of};

/// Whether the directory acted last in a generation that this state does not continue, though it has the number of one that it does.
pub(super) fn is_of_other_history(state: &ClusterState, register: &Register) -> bool {
    let generation = register.last_incarnation.map(|last| generation_of(last.get()));
    generation.is_some_and(|generation| state.generation_key(generation) != register.generation_key)
}

/// A node that has lived in a later generation than this one, or in another one of this number, was not told of by whoever recovered
/// this state: nothing here may be taken for what it was told there (PROTOCOL rule 60).
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
    // Of a generation without a key nothing else tells it.
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

/// A generation's key, for people.
fn shown(key: GenerationKey) -> String {
    if key.is_nil() { "without a key".to_owned() } else { format!("key {key}") }
}
