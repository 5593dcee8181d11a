//! JSON patches (RFC 6902) and merge patches (RFC 7386), with the API server's peculiarities.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use crate::refusal::Refusal;

/// All that the API server says about a JSON patch that cannot be carried out.
const REJECTED: &str = "the server rejected our request due to an error in our request";

/// Carries out a JSON patch. A test for null also passes for a field that is absent.
pub(crate) fn json_patch(object: &Value, patch: &Value) -> Result<Value, Refusal> {
    let malformed = |error| Refusal::bad(format!("error decoding patch: {error}"));
    let Patch(operations) = serde_json::from_value(patch.clone()).map_err(malformed)?;
    let mut object = object.clone();
    for operation in &operations {
        if let PatchOperation::Test(test) = operation
            && test.value.is_null()
            && object.pointer(test.path.as_str()).is_none()
        {
            continue;
        }
        json_patch::patch(&mut object, std::slice::from_ref(operation))
            .map_err(|_| Refusal::new(422, "Invalid", REJECTED))?;
    }
    Ok(object)
}

/// Carries out a merge patch.
pub(crate) fn merge_patch(object: &Value, patch: &Value) -> Value {
    let mut object = object.clone();
    json_patch::merge(&mut object, patch);
    object
}
