//! Checks a finished plan. Only a [`GuardedPlan`] can be applied, and only this module makes one.

use crate::grants::Grants;
use crate::ident::ObjectId;
use crate::limits;
use crate::plan::{Apply, Contested, Plan, Step};
use crate::raw_decision::Ownership;
use crate::snapshot::Problem;

/// What the guard has to know about the parent.
#[derive(Clone, Debug)]
pub struct GuardContext<'a> {
    /// What the plugin may do.
    pub grants: &'a Grants,
    /// The parent's namespace; empty for a cluster-scoped parent.
    pub parent_namespace: &'a str,
    /// Whether the parent is being deleted.
    pub parent_deleting: bool,
    /// The parent's generation.
    pub parent_generation: i64,
    /// The parent's annotation that allows deletions, if it has one.
    pub allow_deletions: Option<&'a str>,
    /// How many children are live.
    pub children: usize,
}

/// A plan that may be carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct GuardedPlan {
    steps: Vec<Step>,
    held: Vec<ObjectId>,
    contested: Vec<Contested>,
}

impl GuardedPlan {
    /// What to do, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Deletions that wait for a user's consent.
    pub fn held(&self) -> &[ObjectId] {
        &self.held
    }

    /// Objects that somebody else keeps changing back.
    pub fn contested(&self) -> &[Contested] {
        &self.contested
    }
}

/// Lets a plan through, step by step: what breaks a rule becomes a refusal, and a mass deletion is held.
pub fn guard(context: &GuardContext<'_>, plan: Plan) -> GuardedPlan {
    let mut steps: Vec<Step> = plan.steps.into_iter().map(|step| checked(context, step)).collect();
    let mut held = Vec::new();
    let prunes = steps.iter().filter(|step| matches!(step, Step::Prune { .. })).count();
    if is_mass_deletion(context, prunes) {
        steps.retain(|step| match step {
            Step::Prune { id, .. } => {
                held.push(id.clone());
                false
            }
            Step::Keep(_) | Step::Apply(_) | Step::Release { .. } | Step::Refuse { .. } => true,
        });
    }
    GuardedPlan { steps, held, contested: plan.contested }
}

fn is_mass_deletion(context: &GuardContext<'_>, prunes: usize) -> bool {
    let allowed = context.allow_deletions == Some(context.parent_generation.to_string().as_str());
    let large = prunes > limits::DELETIONS_FREE
        && prunes * 100 > context.children * limits::DELETIONS_PERCENT_MAX;
    large && !allowed && !context.parent_deleting
}

fn checked(context: &GuardContext<'_>, step: Step) -> Step {
    let refusal = match &step {
        Step::Apply(apply) => refuse_apply(context, apply),
        Step::Prune { id, .. } => {
            context.grants.check_owns(&id.kind).err().map(|error| not_granted(&error))
        }
        Step::Release { id, .. } => {
            context.grants.check_patches(&id.kind).err().map(|error| not_granted(&error))
        }
        Step::Keep(_) | Step::Refuse { .. } => None,
    };
    match refusal {
        Some(problem) => Step::Refuse { id: step.id().clone(), problem },
        None => step,
    }
}

fn not_granted(error: &dyn std::error::Error) -> Problem {
    Problem { reason: "NotGranted".to_owned(), message: error.to_string() }
}

fn refuse_apply(context: &GuardContext<'_>, apply: &Apply) -> Option<Problem> {
    let granted = match apply.ownership {
        Ownership::Owned => context.grants.check_owns(&apply.id.kind),
        Ownership::Partial => context.grants.check_patches(&apply.id.kind),
    };
    if let Err(error) = granted {
        return Some(not_granted(&error));
    }
    let namespace = &*apply.id.key.namespace;
    if !context.parent_namespace.is_empty() && namespace != context.parent_namespace {
        return Some(Problem {
            reason: "OtherNamespace".to_owned(),
            message: format!(
                "{} is not in the parent's namespace {}",
                apply.id, context.parent_namespace
            ),
        });
    }
    if context.parent_deleting && apply.live.is_none() {
        return Some(Problem {
            reason: "ParentDeleting".to_owned(),
            message: format!("{} is not created while its parent is being deleted", apply.id),
        });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::OnImmutable;
    use crate::grants::tests::grants_for_tests;
    use crate::ident::{Kind, ObjectKey};

    fn context(grants: &Grants) -> GuardContext<'_> {
        GuardContext {
            grants,
            parent_namespace: "n",
            parent_deleting: false,
            parent_generation: 4,
            allow_deletions: None,
            children: 6,
        }
    }

    fn id(kind: &str, name: &str) -> ObjectId {
        ObjectId { kind: Kind::new("v1", kind), key: ObjectKey::new("n", name) }
    }

    fn prune(name: &str) -> Step {
        Step::Prune { id: id("ConfigMap", name), uid: name.into() }
    }

    fn create(kind: &str) -> Step {
        Step::Apply(Apply {
            id: id(kind, "a"),
            body: serde_json::Map::new(),
            live: None,
            on_immutable: OnImmutable::Report,
            ownership: Ownership::Owned,
            hash: String::new(),
        })
    }

    fn plan(steps: Vec<Step>) -> Plan {
        Plan { steps, contested: Vec::new() }
    }

    fn reason(guarded: &GuardedPlan) -> String {
        let [Step::Refuse { problem, .. }] = guarded.steps() else {
            panic!("not refused: {guarded:?}")
        };
        problem.reason.clone()
    }

    #[test]
    fn holds_a_mass_deletion_until_the_user_allows_this_generation() {
        let grants = grants_for_tests();
        let plan = plan(["a", "b", "c", "d"].map(prune).to_vec());
        let held = guard(&context(&grants), plan.clone());
        assert_eq!((held.steps().len(), held.held().len()), (0, 4));
        let old = GuardContext { allow_deletions: Some("3"), ..context(&grants) };
        assert_eq!(guard(&old, plan.clone()).held().len(), 4);
        let allowed = GuardContext { allow_deletions: Some("4"), ..context(&grants) };
        assert_eq!(guard(&allowed, plan).steps().len(), 4);
    }

    #[test]
    fn lets_a_few_deletions_through() {
        let grants = grants_for_tests();
        let plan = plan(["a", "b"].map(prune).to_vec());
        assert_eq!(guard(&context(&grants), plan).held().len(), 0);
    }

    #[test]
    fn creates_nothing_under_a_parent_that_is_being_deleted() {
        let grants = grants_for_tests();
        let deleting = GuardContext { parent_deleting: true, ..context(&grants) };
        let guarded = guard(&deleting, plan(vec![create("ConfigMap")]));
        assert_eq!(reason(&guarded), "ParentDeleting");
    }

    #[test]
    fn refuses_kinds_that_are_not_granted() {
        let grants = grants_for_tests();
        let guarded = guard(&context(&grants), plan(vec![create("Secret")]));
        assert_eq!(reason(&guarded), "NotGranted");
    }

    #[test]
    fn refuses_another_namespace() {
        let grants = grants_for_tests();
        let elsewhere = GuardContext { parent_namespace: "other", ..context(&grants) };
        let guarded = guard(&elsewhere, plan(vec![create("ConfigMap")]));
        assert_eq!(reason(&guarded), "OtherNamespace");
    }
}
